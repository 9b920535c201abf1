"""`specnav bench --draft-backends`: one draft on several engines and in several number types, or several drafts."""
