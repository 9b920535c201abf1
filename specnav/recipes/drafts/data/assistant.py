# SPDX-License-Identifier: Apache-2.0
"""Composes random requests to a chat assistant, of the kinds in speculative-decoding benchmarks: writing, roleplay,
reasoning, arithmetic, code, facts, lists, rewriting, and texts to summarise.

A draft for a published instruct model learns from the model's answers to them. No request comes from a benchmark, so
the public files remain valid for measuring.
"""

# ruff: noqa: E501 (forms are easier to read and to add on one line each)

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

PEOPLE = (
    "Maria", "Daniel", "Chloe", "Ahmed", "Sofia", "Ben", "Yuki", "Carlos", "Emma", "Ravi", "Hannah", "Leo", "Fatima",
    "George", "Nina", "Paul", "Zoe", "Omar", "Julia", "Kevin", "Anna", "Marcus", "Lucy", "Ivan", "Grace", "Tim",
)  # fmt: skip
PLACES = (
    "Iceland", "Japan", "Brazil", "Egypt", "Italy", "Kenya", "India", "Mexico", "Norway", "Vietnam", "Canada", "Greece",
    "Morocco", "Chicago", "Berlin", "Sydney", "Cape Town", "Istanbul", "Buenos Aires", "Seoul", "Toronto", "Madrid",
    "the Alps", "the Amazon", "a coastal town", "London", "California", "Texas", "Paris", "Moscow", "Beijing",
)  # fmt: skip
THINGS = (
    "bicycle", "laptop", "coffee machine", "telescope", "garden", "website", "robot", "smartphone", "library", "museum",
    "bridge", "electric car", "solar panel", "bakery", "boat", "guitar", "camera", "school", "hospital", "restaurant",
    "video game", "mobile app", "podcast", "online store", "spaceship", "farm", "battery", "printer", "drone", "house",
)  # fmt: skip
ANIMALS = (
    "dog",
    "cat",
    "whale",
    "eagle",
    "bee",
    "elephant",
    "octopus",
    "wolf",
    "penguin",
    "horse",
    "snake",
    "spider",
)
FOODS = (
    "bread",
    "pasta",
    "chicken soup",
    "salad",
    "chocolate cake",
    "rice",
    "pizza",
    "tacos",
    "pancakes",
    "curry",
)
SUBJECTS = (
    "climate change", "healthy eating", "time management", "artificial intelligence", "the French Revolution",
    "photosynthesis", "public speaking", "renewable energy", "machine learning", "the stock market", "remote work",
    "mental health", "the water cycle", "black holes", "the immune system", "teamwork", "inflation", "data privacy",
    "the Roman Empire", "plate tectonics", "online education", "exercise", "the human heart", "quantum computing",
    "the Industrial Revolution", "vaccines", "democracy", "supply and demand", "social media", "space exploration",
    "the Second World War", "evolution", "electric vehicles", "leadership", "sleep", "saving money", "recycling",
    "globalization", "cybersecurity", "the solar system", "gravity", "DNA", "chemical bonds", "good writing",
    "the internet", "customer service", "genetics", "volcanoes", "the nervous system", "blockchain", "meditation",
)  # fmt: skip
ADJECTIVES = (
    "happy", "mysterious", "ancient", "modern", "quiet", "dangerous", "beautiful", "strange", "brave", "lonely",
    "clever", "famous", "useful", "expensive", "simple", "difficult", "friendly", "cold", "colorful", "tired",
)  # fmt: skip
ROLES = (
    "doctor", "travel guide", "history teacher", "detective", "software engineer", "chef", "lawyer", "scientist",
    "fitness coach", "journalist", "pirate", "king", "career advisor", "gardener", "astronaut", "poet", "nurse",
    "financial advisor", "mechanic", "philosopher", "movie critic", "interviewer", "farmer", "economist",
)  # fmt: skip
GOODS = (
    "apples",
    "books",
    "tickets",
    "stickers",
    "eggs",
    "cookies",
    "pencils",
    "marbles",
    "cards",
    "flowers",
    "shirts",
)
WORK = (
    "washing cars", "selling lemonade", "mowing lawns", "babysitting", "tutoring", "painting fences", "baking cakes",
    "walking dogs",
)  # fmt: skip
LANGUAGES = ("Python", "Python", "Python", "JavaScript", "Java", "C++", "SQL", "HTML")
TASKS = (
    "sorts a list of numbers", "counts the vowels in a string", "finds the largest number in a list",
    "checks whether a string is a palindrome", "computes the factorial of a number", "reads a text file line by line",
    "merges two dictionaries", "removes duplicates from a list", "reverses a linked list", "converts Celsius to Fahrenheit",
    "finds the prime numbers up to n", "computes the average of a list", "searches a sorted array",
    "counts how often each word occurs in a text", "validates an email address", "generates a random password",
    "computes the Fibonacci sequence", "transposes a matrix", "draws a bar chart", "simulates a bank account",
    "builds a to-do list", "parses a date", "implements a stack", "implements a queue", "finds the shortest path",
)  # fmt: skip
SONGS = (
    "love",
    "home",
    "the road",
    "summer",
    "the moon",
    "freedom",
    "a river",
    "yesterday",
    "the storm",
    "gold",
)
SHOWS = (
    "the office", "the walking dead", "star wars", "the lion king", "harry potter", "game of thrones", "the godfather",
    "friends", "the wizard of oz", "the simpsons", "batman", "titanic", "breaking bad", "frozen", "the notebook",
    "toy story", "grey's anatomy", "doctor who", "the big bang theory", "jurassic park", "the hobbit", "law and order",
)  # fmt: skip
EVENTS = (
    "the world cup", "the super bowl", "the nobel peace prize", "the civil war", "the olympic games", "the world series",
    "the american revolution", "the battle of waterloo", "the cold war", "the first moon landing", "the gold rush",
    "the great depression", "the stanley cup", "the oscar for best picture", "the eurovision song contest",
)  # fmt: skip
BODY = (
    "heart",
    "liver",
    "brain",
    "lungs",
    "kidneys",
    "stomach",
    "skin",
    "eye",
    "pancreas",
    "spine",
    "inner ear",
    "knee",
)
THEORIES = (
    "relativity", "evolution", "supply and demand", "continental drift", "natural selection", "gravity", "the big bang",
    "electromagnetism", "cell division", "the periodic table", "radio waves", "the steam engine", "the telephone",
    "penicillin", "the printing press", "the light bulb", "paper money", "the constitution", "daylight saving time",
)  # fmt: skip

FACTS = (
    "Who wrote the song {song} and {song2}?", "Who played the main character in {show}?", "When did {show} come out?",
    "When was {show} filmed?", "Who sings the theme song of {show}?", "Where was {show} filmed?",
    "How many seasons of {show} are there?", "Who won {event} in {year}?", "When did {event} start?",
    "Where was {event} held in {year}?", "How many people took part in {event}?", "What was the main cause of {event}?",
    "Who came up with the idea of {theory}?", "When was {theory} discovered?", "What is the function of the {body}?",
    "Where is the {body} located in the human body?", "What is the capital of {place}?",
    "What is the largest city in {place}?", "What language do they speak in {place}?",
    "What is the population of {place}?", "Where does the river in {place} begin?", "Who is the president of {place}?",
    "What does the word {adjective} mean?", "What is the meaning of the name {person}?", "Who invented the {thing}?",
    "When was the first {thing} built?", "What kind of {animal} lives in {place}?", "How long does a {animal} live?",
    "What do you call a group of {animal}s?", "Which country makes the most {food}?", "Where does {food} come from?",
    "What is the difference between {subject} and {subject2}?", "What year did {place} join the united nations?",
    "Who is the voice of the {animal} in {show}?", "What is the name of the {animal} in {show}?",
    "How many players are on a team in {event}?", "Who was the first woman to win {event}?",
    "What is the legal age to buy a {thing} in {place}?", "Why is the {body} important for {subject}?",
    "The {adjective} {animal} in {show} is played by who?", "Who died in season {a} of {show}?",
)  # fmt: skip
INSTRUCTIONS = (
    "Give {a} tips for {subject}.", "Explain {subject} in simple terms.", "Describe how a {thing} works.",
    "Write a short paragraph about {subject}.", "List {a} advantages of {subject}.", "What are the benefits of {subject}?",
    "Name {a} reasons why people like {food}.", "Give a recipe for {food}.", "Create a list of {a} ideas for a {thing}.",
    "Generate a catchy slogan for a {thing}.", "Write a haiku about a {animal}.", "Describe a {adjective} {thing}.",
    "Rewrite the sentence in the passive voice: {person} bought a {adjective} {thing} in {place}.",
    "Correct the grammar of this sentence: {person} have go to {place} with their {animal} yesterday.",
    "Classify the following words as nouns, verbs or adjectives: {thing}, {adjective}, run, {animal}.",
    "What is the opposite of {adjective}?", "Give three synonyms for {adjective}.",
    "Convert {b} miles to kilometers.", "Suggest a name for a {adjective} {thing}.",
    "Identify the main idea of this text: {person} moved to {place} to learn about {subject}. After {a} years, {person} "
    "opened a {thing} there.",
    "Turn this sentence into a question: {person} likes {food}.", "Write a sentence using the words {thing} and {animal}.",
    "Edit this sentence to make it shorter: The {adjective} {thing} that {person} has bought is a thing that is in {place}.",
    "What would happen if there were no {theory}?", "Suggest {a} books about {subject}.",
    "Write a tweet about {subject}.", "Summarize the importance of {subject} in one sentence.",
    "Explain why {subject} matters to a {role}.", "What are some common mistakes in {subject}?",
    "Make a shopping list for {food}.", "Design a daily schedule for a {role}.", "Compare a {thing} with a {thing2}.",
    "Give an example of {subject}.", "What are the steps to build a {thing}?", "Give advice to a {role} who visits {place}.",
    "Find the odd one out: {animal}, {animal2}, {thing}, {food}.", "Translate this sentence into Spanish: {person} has a {thing}.",
    "Complete the sentence: The {adjective} {animal} in {place} was", "Generate a riddle about a {animal}.",
    "Categorize {food}, {animal} and {thing}.", "Create a metaphor for {subject}.", "Name a famous {role}.",
)  # fmt: skip
WRITING = (
    "Write a blog post about a trip to {place}, highlighting the culture and the food.",
    "Write a professional email to your manager asking for feedback on the report about {subject}.",
    "Write a persuasive email to {person}, who is afraid of {subject}, to invite them to a talk in {place}.",
    "Outline an article that compares a {thing} and a {thing2}.",
    "Describe a lively market in {place} in two paragraphs, using all the senses.",
    "Write a short story that begins with the words: The {adjective} {thing} had been waiting for {person}.",
    "Write a product description for a {adjective} {thing}.", "Write an opening paragraph of a novel set in {place}.",
    "Write a cover letter for a job as a {role} in {place}.", "Write a speech about {subject} for students.",
    "Write a review of a restaurant in {place} that serves {food}.", "Write a poem about {subject}.",
    "Write a dialogue between a {role} and a {role2} about {subject}.", "Draft an invitation to a party with {food}.",
    "Compose a letter from {person} to {person2} about a {adjective} {animal}.",
    "Write an essay about the effects of {subject} on {place}.",
    "Write a fairy tale about a {adjective} {animal} and a {role}.",
    "Imagine you are a {role}. Explain {subject} to {person}, who is {a} years old.",
    "Pretend to be a {adjective} {role} and describe your day in {place}.",
    "You are a {role}. {person} asks you about {subject}. How do you answer?",
    "Act as a {role}. What would you say about the {thing} of the future?",
    "Please take on the role of a {role} who has just discovered {place}. Begin with a greeting.",
    "As a {role}, write instructions for using a {thing}.",
    "What strategies could a {role} use to improve {subject}? Describe {a} of them with examples.",
    "How did {event} change {place}? Discuss the causes and the consequences.",
    "Explain the relation between {subject} and {subject2}, and give examples of both.",
    "Describe the process of {theory} and why it is important for {subject}.",
    "Discuss whether {subject} should be taught in schools.", "Create a lesson plan about {subject} for {role}s.",
    "Provide insights into the connection between {subject} and {event}.",
    "What are the primary factors that influence {subject}? How can a {role} use them?",
    "Explain what a {theory} is as if I were a {role}, then give {a} questions about it.",
    "Name {a} films about {subject} and say why people should watch them.",
    "Extract the names and places from this text as a table: {person} met {person2} in {place}. {person2} went on to {place2}.",
    'Evaluate these reviews on a scale of 1 to 5: "The {thing} was {adjective}." "I would never buy this {thing} again."',
    "Read this and answer the question. {person} has a {animal} called {person2}. The {animal} likes {food}. What does the {animal} like?",
    "Write a function in {language} that {task}.", "Write a {language} program that {task}.",
    "How can I write code in {language} that {task}? Explain each step.",
    "Implement a class in {language} that {task}, with comments.",
    "Write a simple website in HTML about {subject}.", "What is wrong with my {language} program that {task}?",
    "Explain how an algorithm that {task} works and what its time complexity is.",
    "If {person} overtakes the second person in a race in {place}, what is {person}'s position? Explain.",
    "{person} has {a} brothers, and each brother has {b} sisters. How many sisters does {person} have?",
    "Which word does not belong with the others: {animal}, {animal2}, {thing}? Why?",
    "A {thing} stands to the left of a {thing2}, and the {thing2} to the left of a {food}. What is in the middle?",
    "Solve for x: {a}x + {b} = {c}", "What is {b} percent of {c}?", "Find the value of f({a}) if f(x) = {b}x^2 - {c}x.",
    "The vertices of a triangle are at (0, 0), ({a}, {b}) and ({b}, {a}). What is its area?",
    "A tank holds {c} liters and loses {a} liters an hour. After how many hours is it half empty?",
    "What is the probability of rolling a sum of {a} with two dice? Explain.",
)  # fmt: skip
ARITHMETIC = (
    "{person} has {a} {goods}. {person2} has {b} times as many {goods} as {person}. How many {goods} do they have together?",
    "{person} earns ${b} an hour {work}. Last week {person} worked {a} hours on each of {c5} days. How much did {person} earn?",
    "A box holds {b} {goods}. {person} buys {a} boxes and gives {c5} {goods} to {person2}. How many {goods} are left?",
    "A {thing} costs ${c}. It is {p}% off this week. If {person} buys {a} of them, how much does {person} pay?",
    "{person} drives {c} miles at {b10} miles per hour and then {b} more miles at half the speed. How long does the trip take?",
    "{person} is {a} years older than {person2}. In {c5} years, {person2} will be {b20} years old. How old is {person} now?",
    "There are {c} {goods} in a shop. {person} takes {p}% of them and {person2} takes {a}. How many {goods} remain?",
    "{person} read {a} pages on Monday, twice as many on Tuesday, and {b} pages on Wednesday. How many pages did {person} read "
    "in total?",
    "{person} makes {b20} {goods} a day. {person} eats {c5} for breakfast and sells the rest for ${a} each. How much does "
    "{person} make every day?",
    "A class has {b20} students. {p}% of them are girls. {a} of the girls play chess. How many girls do not play chess?",
    "{person} saves ${a} every day in the first week and twice as much every day in the second week. How much money does "
    "{person} have after two weeks?",
    "It takes {a} workers {b} hours to build a {thing}. How long would it take {c5} workers?",
    "{person} buys {a} {goods} for ${c5} each and {b} {goods2} for ${a} each. {person} pays with a ${c100} bill. How much change "
    "does {person} get?",
    "A rope that is {c} feet long is cut into {c5} equal pieces, and then each piece is cut into {a}. How long is each piece?",
    "The ratio of {goods} to {goods2} in a bag is {a}:{c5}. If there are {c} in total, how many {goods} are there?",
    "{person} runs {a} miles every morning and {c5} miles every evening. How many miles does {person} run in {b} days?",
    "Each of {b} tables seats {a} people, and {c5} tables are empty. If {c} people come, how many must stand?",
    "{person} sold {b} {goods} in April, and half as many in May. In June {person} sold {a} more than in May. How many {goods} "
    "did {person} sell altogether?",
)  # fmt: skip
REPORTS = (
    "Write a long news report about a {adjective} {animal} that was found in {place}.",
    "Write a long newspaper article about {person}, a {role} from {place} who was accused of stealing a {thing}.",
    "Write a detailed news story about {event} and how {person} took part in it.",
    "Write a news article about a fire in a {thing} in {place}, with quotes from {person} and {person2}.",
    "Write a long sports report about a football match between {place} and {place2}, in which {person} scored.",
    "Write a news article: a {role} in {place} has warned about {subject}.",
    "Write a long newspaper article about a new law on {subject} in {place}.",
    "Write a news report about a court case in {place}: {person} against {person2}.",
    "Write a news story about the {role} {person}, who has bought a {adjective} {thing} in {place} for {c} million dollars.",
    "Write a long article about a storm in {place} and the people who lost their {thing}.",
    "Write a news article about a study on {subject}, with numbers and quotes of a {role}.",
    "Write a celebrity news article about {person}, the star of {show}.",
)  # fmt: skip

NOUNS = (
    "numbers",
    "words",
    "values",
    "items",
    "lst",
    "data",
    "arr",
    "strings",
    "prices",
    "scores",
    "points",
    "names",
)
FUNCTIONS = (
    ("count_{cmp}({noun}: List[int], k: int) -> int", "Return how many elements of {noun} are {cmpw} k.", "count_{cmp}([1, 5, {a}, 2], {c5})"),
    ("keep_{cmp}({noun}: list, k: int)", "Return only the elements of {noun} that are {cmpw} k.", "keep_{cmp}([4, {a}, 9, 1], {c5})"),
    ("sum_{par}({noun}: List[int]) -> int", "Given a list of integers, return the sum of its {par} elements.", "sum_{par}([{a}, 2, 3, {c5}])"),
    ("product_of_{par}({noun})", "Write a function that returns the product of all {par} numbers in the list, or 1 if there are none.", "product_of_{par}([{a}, 3, 4])"),
    ("is_{shape}(text: str) -> bool", "Check if the given text is {shape}. Ignore spaces.", "is_{shape}('{word}')"),
    ("replace_{ch}s(text: str, by: str) -> str", "Replace every '{ch}' in text by the string `by`.", "replace_{ch}s('{word}', '-')"),
    ("longest_word({noun}: List[str]) -> Optional[str]", "Return the longest string in the list; the first one of equal length. Return None for an empty list.", "longest_word(['{word}', 'a', '{animal}'])"),
    ("group_by_length(text)", "Group the words of a sentence by their length.\n    Return a dictionary from the length to a list of words.", "group_by_length('the {adjective} {animal}')"),
    ("rotate({noun}: list, k: int) -> list", "Rotate the list to the right by k places.", "rotate([1, 2, 3, {a}], {c5})"),
    ("running_{agg}({noun}: List[float]) -> List[float]", "For every position, return the {agg} of the elements up to it.", "running_{agg}([1, {a}, 3])"),
    ("digits_{agg}(n: int) -> int", "Return the {agg} of the decimal digits of n.", "digits_{agg}({c}{a})"),
    ("starts_with_{ch}({noun}: List[str])", "Return a new list with the strings that start with the letter {ch}, sorted by length.", "starts_with_{ch}(['{word}', '{animal}'])"),
    ("every_nth({noun}, n)", "You are given a list and a positive integer n. Return every n-th element of the list.", "every_nth([5, 6, 7, 8, {a}], 2)"),
    ("to_base_{a}(n: int) -> str", "Convert a non-negative integer to a string in base {a}.", "to_base_{a}({c})"),
    ("second_{ext}({noun})", "Return the second {ext} element of the list, or None if there is no such element.", "second_{ext}([{a}, 1, {c5}])"),
    ("interleave(a: str, b: str) -> str", "Interleave two strings, character by character. The rest of the longer one is added at the end.", "interleave('{word}', 'xy')"),
    ("pairs_with_sum({noun}, total)", "Count the pairs of elements in the list that sum to total.", "pairs_with_sum([1, 2, 3, {a}], {b})"),
    ("mean_of_{par}s({noun}: List[int]) -> float", "Compute the mean of the {par} numbers. If there are none, return 0.0", "mean_of_{par}s([2, {a}, 3])"),
    ("next_{kind}(n: int) -> int", "Return the smallest {kind} number that is larger than n.", "next_{kind}({b})"),
    ("caesar(text: str, shift: int)", "Shift every lowercase letter of the text by shift places in the alphabet.\n    Other characters stay as they are.", "caesar('{word}', {a})"),
    ("flatten(nested)", "Given a list of lists, return one list with all elements in their order.", "flatten([[1, {a}], [], [{b}]])"),
    ("remove_{kind}s({noun}: List[int]) -> List[int]", "Return the list without the {kind} numbers. Keep the order.", "remove_{kind}s([1, 2, {a}, {b}])"),
    ("word_with_most(text: str, letter: str) -> str", "Return the word in which the letter occurs most often.", "word_with_most('{adjective} {animal}', 'e')"),
    ("grade(score)", "Return a letter grade: at least 90 is 'A', at least {c80} is 'B', anything else is 'C'.", "grade({c})"),
)  # fmt: skip
HEADS = ("", "from typing import List, Optional\n\n\n", "from typing import List\n\n", "import math\n\n")
SHARES: tuple[tuple[str, float], ...] = (
    ("writing", 0.24), ("facts", 0.16), ("instructions", 0.18), ("arithmetic", 0.16), ("code", 0.14), ("articles", 0.12),
)  # fmt: skip
KINDS = {"writing": WRITING, "facts": FACTS, "instructions": INSTRUCTIONS, "arithmetic": ARITHMETIC}


def assistant_request(rng: random.Random, articles: Sequence[str] = ()) -> tuple[str, str]:
    """(kind, request), determined by the state of `rng`. articles: texts to summarise; without any they are composed."""
    kind = rng.choices([name for name, _ in SHARES], [share for _, share in SHARES])[0]
    return kind, request_of(kind, rng, articles)


def request_of(kind: str, rng: random.Random, articles: Sequence[str] = ()) -> str:
    """A request of one kind of SHARES."""
    if kind == "code":
        return _code(rng)
    if kind == "articles":
        text = (
            rng.choice(articles)
            if articles
            else " ".join(fill(rng.choice(INSTRUCTIONS), rng) for _ in range(4))
        )
        return f"Summarize: {text}"
    asked = fill(rng.choice(KINDS[kind]), rng)
    return asked[0].lower() + asked[1:] if kind == "facts" and rng.random() < 0.2 else asked


def report_request(rng: random.Random) -> str:
    """A request for an article, which is summarised later."""
    return fill(rng.choice(REPORTS), rng)


def fill(form: str, rng: random.Random) -> str:
    """A form with its placeholders filled in."""
    number = rng.randint
    words = {
        "person": rng.choice(PEOPLE), "person2": rng.choice(PEOPLE), "place": rng.choice(PLACES),
        "place2": rng.choice(PLACES), "thing": rng.choice(THINGS), "thing2": rng.choice(THINGS),
        "animal": rng.choice(ANIMALS), "animal2": rng.choice(ANIMALS), "food": rng.choice(FOODS),
        "subject": rng.choice(SUBJECTS), "subject2": rng.choice(SUBJECTS), "adjective": rng.choice(ADJECTIVES),
        "role": rng.choice(ROLES), "role2": rng.choice(ROLES), "goods": rng.choice(GOODS), "goods2": rng.choice(GOODS),
        "work": rng.choice(WORK), "language": rng.choice(LANGUAGES), "task": rng.choice(TASKS),
        "song": rng.choice(SONGS), "song2": rng.choice(SONGS), "show": rng.choice(SHOWS), "event": rng.choice(EVENTS),
        "body": rng.choice(BODY), "theory": rng.choice(THEORIES), "noun": rng.choice(NOUNS),
        "word": rng.choice(THINGS).replace(" ", ""), "ch": rng.choice("abcdeilmnorstu"), "par": rng.choice(("even", "odd")),
        "cmp": (cmp := rng.choice(("greater", "smaller"))), "cmpw": f"{cmp} than", "agg": rng.choice(("sum", "max", "product")),
        "ext": rng.choice(("largest", "smallest")), "shape": rng.choice(("a_palindrome", "uppercase", "sorted")),
        "kind": rng.choice(("prime", "square", "negative", "perfect")),
        "a": number(2, 9), "b": number(3, 30), "c": number(20, 200), "c5": number(2, 6), "c80": number(60, 80),
        "c100": 50 * number(1, 4), "b10": 5 * number(4, 14), "b20": number(15, 40), "p": 10 * number(1, 7),
        "year": number(1900, 2020),
    }  # fmt: skip
    return form.format(**words)


def _code(rng: random.Random) -> str:
    """The beginning of a Python function, to be completed."""
    head, said, example = rng.choice(FUNCTIONS)
    quote = rng.choice(('"""', "'''"))
    example_form: Callable[[str], str] = rng.choice(
        (lambda one: f"\n    >>> {one}", lambda one: f"\n\n    Example:\n    {one}", lambda one: "")
    )
    body = f"def {head}:\n    {quote}{rng.choice(('', ' ', chr(10) + '    '))}{said}{example_form(example)}\n    {quote}\n"
    return "Complete the code I provided.\n" + rng.choice(("", "\n")) + rng.choice(HEADS) + fill(body, rng)
