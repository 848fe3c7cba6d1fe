"""The stage `report`: tables, pages and pictures from what `record` wrote; draws, never measures."""
