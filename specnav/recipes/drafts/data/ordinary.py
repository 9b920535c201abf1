# SPDX-License-Identifier: Apache-2.0
"""Composes random ordinary requests, which have nothing to do with this project's own data.

A small model answers all of them in its own style. A draft that has never seen such prompts predicts these answers
worst.
"""

from __future__ import annotations

import random

THINGS = (
    "lighthouse", "bicycle", "volcano", "library", "compass", "garden", "submarine", "orchestra", "market", "railway",
    "glacier", "kitchen", "telescope", "bakery", "desert", "hospital", "harbour", "robot", "museum", "printing press",
    "dictionary", "airport", "beehive", "satellite", "theatre", "bridge", "forest", "calendar", "camera", "violin",
)  # fmt: skip
PLACES = (
    "Norway", "Kyoto", "the Andes", "Cairo", "Lisbon", "a small village", "the Baltic Sea", "Canada", "Nairobi",
    "the north coast", "Vienna", "New Zealand", "the old town", "Peru", "Scotland", "a mountain hut",
)  # fmt: skip
NAMES = (
    "Mara", "Jonas", "Aisha", "Pedro", "Lin", "Oskar", "Priya", "Tom", "Elena", "Yusuf", "Greta", "Samuel", "Noor",
    "Victor", "Hana", "Luca",
)  # fmt: skip
SUBJECTS = (
    "saving energy at home", "learning a new language", "the history of paper", "how vaccines work", "public transport",
    "planning a long walk", "the rules of chess", "writing clear reports", "keeping bees", "growing tomatoes",
    "the causes of inflation", "sleeping better", "how tides arise", "preparing for an interview", "recycling glass",
    "the invention of the wheel", "good manners in meetings", "sorting algorithms", "the water cycle", "old maps",
)  # fmt: skip
GOODS = ("apples", "pencils", "tickets", "bottles", "stamps", "chairs", "eggs", "books", "candles", "coins")
WHO = (
    "wrote the first novel about {place}", "invented the {thing}", "discovered the route to {place}",
    "was the first to cross {place}", "designed the {thing} in {place}", "sings the song about the {thing}",
    "plays the leading part in the film about a {thing}", "founded the company that made the {thing}",
)  # fmt: skip
ASKED = (
    "Explain {subject} to a child of ten.",
    "Write a short story about a {thing} in {place}.",
    "What are the main differences between a {thing} and a {other}?",
    "Give me five tips for {subject}.",
    "Compose an e-mail to {name} about {subject}.",
    "Describe a {thing} in three sentences.",
    "Make a list of things that one finds in a {thing}.",
    "Why is the {thing} important in {place}?",
    "Rewrite this sentence so that it is easier to read: {name} had, in {place}, seen a {thing} which nobody knew of.",
    "Who {who}?",
    "When was the {thing} in {place} built?",
    "Where is the largest {thing} of {place}?",
    "How many people live in {place} today?",
    "What does it mean when somebody says that {subject} is like a {thing}?",
    "Suggest a title for an article on {subject}.",
    "Imagine you are a {thing}. Write about your day in {place}.",
    "Classify these words as animals, plants or things: {thing}, {other}, oak, sparrow.",
    "Summarise what is known about {subject} in one paragraph.",
    "Write a Python function that counts how often the word {thing} stands in a text.",
    "Write a class for a {thing} with a name, a place and a method that describes it.",
    "{name} buys {a} {goods} at {b} cents each and pays with {c} dollars. How much change does {name} get?",
    "{name} has {a} {goods} and gives {b} of them to {friend}. {friend} then loses half of them. How many are left?",
    "A train to {place} takes {a} hours at {c} km an hour. How long does it take at {d} km an hour?",
    "If {a} people need {b} days to build a {thing}, how long do {c} people need?",
    "Is it true that {subject} began in {place}? Give reasons.",
    'Translate into plain English: "{name} is about to embark upon {subject}."',
)  # fmt: skip
SENTENCES = (
    "{name} from {place} said on Monday that the {thing} would be closed for {a} weeks.",
    "The {thing} has stood in {place} since {year} and was last repaired {a} years ago.",
    "Officials in {place} hope that {subject} will attract {c} visitors a year.",
    "According to {name}, who lives beside the {thing}, nothing has changed since {year}.",
    "A report on {subject} found that {a} in {c} people had never heard of it.",
    "{friend} and {name} were seen near the {thing} shortly before noon.",
    "The price of {goods} rose by {a} per cent, the most since {year}.",
    "Critics say that the plan for the {thing} costs too much and helps {place} little.",
)
SHARE_OF_ARTICLES = 0.15


def ordinary_request(rng: random.Random) -> str:
    """One request, determined by the state of `rng`."""
    if rng.random() < SHARE_OF_ARTICLES:
        article = " ".join(_filled(rng.choice(SENTENCES), rng) for _ in range(rng.randint(2, 5)))
        return f"Summarise the following text: {article}"
    return _filled(rng.choice(ASKED), rng)


def _filled(form: str, rng: random.Random) -> str:
    words = {
        "thing": rng.choice(THINGS), "other": rng.choice(THINGS), "place": rng.choice(PLACES),
        "name": rng.choice(NAMES), "friend": rng.choice(NAMES), "subject": rng.choice(SUBJECTS),
        "goods": rng.choice(GOODS),
        "a": rng.randint(2, 12), "b": rng.randint(2, 30), "c": rng.randint(13, 90), "d": rng.randint(20, 120),
        "year": rng.randint(1820, 2015),
    }  # fmt: skip
    who = rng.choice(WHO).format(**words)
    return form.format(who=who, **words)
