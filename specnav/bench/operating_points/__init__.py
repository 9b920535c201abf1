"""Operating points side by side: ours, what the papers print, and what their own formulas make of their own numbers."""
