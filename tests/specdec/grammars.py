"""Grammars that more than one file of tests asks under."""

from __future__ import annotations

ACTIONS = r"""
start: reasoning "\n" (action | stop)
reasoning[max_tokens=9]: /[^\n]*/
action: "The next action is " ("move forward " ("25" | "50" | "75") " cm." | "turn " ("left" | "right") " 30 degree.")
stop: "I think I should stop because I have finished the instruction."
"""
