"""Studies of one paper's own table: the same varied, beside what it prints."""
