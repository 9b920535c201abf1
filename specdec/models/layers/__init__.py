"""What a decoder layer computes beside its attention, plain and compiled by torch."""
