"""What a run asks and what it is compared with: questions, operating points, the papers' figures and formulas."""
