"""How large a token tree is worth being: its nodes by what they bring and what their rows cost."""
