"""The parts of GRPO (design.md section 5), one short file each."""
