"""`make report`: measures whether borrowing pays and writes the tables of docs/borrowing.md."""
