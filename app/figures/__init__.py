"""Figures of the pages: records in, Plotly figures out. Pure; themes, zoom and drawing belong to the live chart."""
