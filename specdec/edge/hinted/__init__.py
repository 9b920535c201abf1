"""What early exits expect of verdicts, heard on the edge, and drafting for that beside drafts in flight."""
