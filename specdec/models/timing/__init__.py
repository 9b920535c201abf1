"""What forwards take: tried by their rows, and made to take longer (pacing)."""
