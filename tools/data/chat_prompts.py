"""Makes user messages from text sets, for a chat model to answer when its heads are trained.

    python tools/data/chat_prompts.py DATA OUT

reads the train splits in DATA (SQuAD, GSM8K, SciTLDR, QMSum, trivia, dialogues, Wikipedia, novels, design documents,
government web) and writes OUT/train.jsonl and OUT/valid.jsonl: lines with `task` and `prompt`, shuffled
deterministically. One document in twenty, by the hash of its text, gives prompts only for valid.jsonl.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

Row = dict
Prompts = Iterator[tuple[str, str]]  # text whose hash decides between train and valid; message
WORDS = (60, 320)  # shortest and longest passage
SHARES = {  # prompts per task
    "math": 2500,
    "qa": 2600,
    "rag": 2600,
    "summarise": 2800,
    "meeting": 500,
    "dialogue": 900,
    "continue": 700,
    "rewrite": 1100,
    "explain": 1100,
    "write": 2400,
    "code": 1400,
    "translate": 700,
}

SUMMARISE = (
    "Summarize: {}",
    "Summarize the following text in two or three sentences.\n\n{}",
    "{}\n\nTL;DR",
    "What are the main points of this text?\n\n{}",
    "Give me a short summary of this article:\n\n{}",
    "Write a one-sentence summary of the text below.\n\n{}",
)
REWRITE = (
    "Rewrite the following text in simpler language.\n\n{}",
    "Rewrite this paragraph so that it sounds more formal:\n\n{}",
    "Please correct the grammar and improve the style of this text:\n\n{}",
    "Turn the following passage into a bulleted list.\n\n{}",
    "Rewrite this text as a conversation between two friends.\n\n{}",
    "Extract the names of all people, places and organizations from this text, as a list:\n\n{}",
    "Shorten this text to half its length without losing anything important:\n\n{}",
)
CONTINUE = ("Continue this text:\n\n{}", "Write the next paragraph of this story.\n\n{}", "{}\n\nWhat happens next?")
EXPLAIN = (
    "Explain this passage to a ten-year-old:\n\n{}",
    "What does the author mean here?\n\n{}",
    "Explain step by step what the following text says.\n\n{}",
    "Write three questions about this text, and answer them.\n\n{}",
    "What are the advantages and disadvantages of what is described here?\n\n{}",
)
ABOUT = (
    "Write a short article about {}.",
    "Write a blog post about {} with a catchy headline.",
    "What do you know about {}?",
    "Explain {} to a beginner.",
    "Write a poem about {}.",
    "Write a short story in which {} plays a part.",
    "Draft an email to a colleague in which you suggest a meeting about {}.",
    "List ten facts about {}.",
    "Imagine that you are an expert on {}. Give an interviewer three answers.",
    "Compare {} with {}.",
    "Write a speech of one minute about {}.",
    "Give me an outline for a presentation about {}.",
    "What questions should I ask somebody who knows a lot about {}?",
    "Describe {} in detail, as if to somebody who has never heard of it.",
    "Write a review of a book about {}.",
    "Pretend you are a tour guide. Tell a group of visitors about {}.",
    "Why is {} important? Give reasons for and against.",
    "Write a dialogue between a teacher and a student about {}.",
)
TOPICS = """\
climate change; renewable energy; healthy eating; learning a language; time management; online privacy; space travel;
the Roman Empire; public transport; artificial intelligence; remote work; a trip to Hawaii; a small garden; growing
tomatoes; saving money; a job interview; the French Revolution; photosynthesis; black holes; vaccines; the stock
market; chess; jazz; Shakespeare; the human heart; sleep; earthquakes; the water cycle; electric cars; a lost dog; a
robot that learns to paint; a haunted lighthouse; friendship; courage; the ocean; autumn; a birthday party; a new
smartphone; social media; school uniforms; homework; team sports; meditation; running a marathon; baking bread;
coffee; the history of the Internet; databases; machine learning; quantum computers; supply and demand; inflation;
democracy; human rights; the Great Wall of China; volcanoes; dinosaurs; bees; recycling; plastic in the sea; the
Olympic Games; customer complaints; a delayed order; a letter of recommendation; a product launch; a company picnic; a
city of the future"""
LANGUAGES = ("Python", "JavaScript", "Java", "C++", "Go", "Rust", "SQL", "Bash")
CODE = (
    "Write a {language} function that {task}.",
    "Implement the following in {language}: a program that {task}. Add comments.",
    "How do I write {language} code that {task}? Show an example and explain it.",
    "Write a {language} class with a method that {task}, and a test for it.",
)
CODE_TASKS = """\
reverses a string; checks whether a word is a palindrome; counts the vowels in a text; finds the largest number in a
list; sorts a list of numbers without a library; removes duplicates from a list and keeps its order; merges two sorted
lists; computes the n-th Fibonacci number; computes the factorial of n; checks whether a number is prime; lists all
primes below n; finds the greatest common divisor of two numbers; converts Celsius to Fahrenheit; counts how often
each word occurs in a file; reads a CSV file and prints the average of a column; writes a list of records to a JSON
file; downloads a web page and prints its title; parses a date such as 2024-05-17; computes the number of days between
two dates; validates an email address; generates a random password; rolls two dice a thousand times and prints the
frequencies; searches a sorted array by bisection; implements a stack; implements a queue with two stacks; implements
a linked list; reverses a linked list; finds a cycle in a linked list; implements a binary search tree; prints a
binary tree level by level; computes the depth of a tree; finds the shortest path in a grid; implements Dijkstra's
algorithm; does a breadth-first search in a graph; sorts the nodes of a graph topologically; solves the towers of
Hanoi; solves the eight queens puzzle; prints all permutations of a string; prints all subsets of a set; checks
whether brackets are balanced; evaluates an arithmetic expression; converts a number to Roman numerals; converts a
decimal number to binary; adds two matrices; multiplies two matrices; transposes a matrix; finds the longest common
subsequence of two strings; computes the edit distance of two words; finds the longest word in a sentence; capitalizes
the first letter of every word; encrypts a text with a Caesar cipher; compresses a string by run lengths; groups words
that are anagrams; finds the two numbers in a list that add up to a target; finds the median of a list; computes mean
and standard deviation; rounds a price to two decimals; simulates a bank account with deposits and withdrawals; keeps
a to-do list on the command line; plays tic-tac-toe; plays rock, paper, scissors; guesses a number by asking
questions; counts the lines of all files in a folder; renames all files in a folder; finds the largest files on a
disk; watches a file for changes; sends an HTTP request and handles errors; implements a simple web server; caches the
results of a function; limits how often a function is called; runs several tasks in parallel; logs messages with a
timestamp; parses command-line arguments; reads settings from a file; connects to a database and inserts a row;
selects the ten best customers by revenue; joins two tables; computes a running total; draws a bar chart; fits a
straight line to points; computes the area of a polygon; finds the points closest to each other; converts a color from
RGB to hex; flattens a nested list; deep-copies an object; compares two versions such as 1.2.10 and 1.3; checks
whether a year is a leap year; prints a calendar of a month; prints a multiplication table; prints FizzBuzz up to 100;
checks a Sudoku; plays Conway's Game of Life; generates a maze; computes change with the fewest coins; solves the
knapsack problem; tokenizes a sentence; removes punctuation from a text; computes TF-IDF; classifies numbers as even
or odd; implements k-means; computes the dot product of two vectors; normalizes a vector; integrates a function
numerically; finds a root with Newton's method"""
TONGUES = ("French", "German", "Spanish", "Italian", "Portuguese", "Dutch")


def rows(data: Path, name: str) -> list[Row]:
    path = data / name / "train.jsonl.gz"
    if not path.exists():
        raise SystemExit(f"{path}: no such file; expected the text sets of the manifest in DATA")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.replace("\n", " ").split(";")]


class Sets:
    """Endless prompts, sampled from the text sets."""

    def __init__(self, data: Path, draw: random.Random):
        self.draw = draw
        self.squad = rows(data, "squad_v1")
        self.gsm8k = rows(data, "gsm8k")
        self.scitldr = rows(data, "scitldr")
        self.trivia = rows(data, "open_trivia_qa")
        self.meetings = rows(data, "qmsum")
        self.dialogues = rows(data, "text_dialogue")
        prose = {name: rows(data, f"text_{name}") for name in ("wiki", "fiction", "techdocs", "govweb")}
        self.titles = [row["title"] for row in prose["wiki"]] + [
            row["title"] for row in prose["govweb"] if len(row["title"]) < 80
        ]
        self.topics = listed(TOPICS)
        self.prose = prose

    def passage(self, kinds: tuple[str, ...] = ("wiki", "fiction", "techdocs", "govweb")) -> tuple[str, str]:
        """Whole paragraphs of a document, and the document's name."""
        while True:
            row = self.draw.choice(self.prose[self.draw.choice(kinds)])
            paragraphs = [part for part in re.split(r"\n\s*\n", row["text"]) if len(part.split()) > 15]
            if not paragraphs:
                continue
            start, wanted = self.draw.randrange(len(paragraphs)), self.draw.randint(*WORDS)
            taken: list[str] = []
            for paragraph in paragraphs[start:]:
                taken.append(paragraph)
                if sum(len(part.split()) for part in taken) >= wanted:
                    break
            text = " ".join(" \n\n".join(taken).split(" ")[: WORDS[1]])
            if len(text.split()) >= WORDS[0]:
                return row["id"], text

    def math(self) -> Prompts:
        for row in self.gsm8k:
            yield row["id"], row["question"]

    def qa(self) -> Prompts:
        while True:
            if self.draw.random() < 0.5:
                row = self.draw.choice(self.trivia)
                yield row["question"], row["question"]
            else:
                row = self.draw.choice(self.squad)
                yield row["title"], self.draw.choice(row["qas"])["question"]

    def rag(self) -> Prompts:
        while True:
            i = self.draw.randrange(len(self.squad) - 2)
            row = self.squad[i]
            if not row["qas"]:
                continue
            question = self.draw.choice(row["qas"])["question"]
            contexts = [one["context"] for one in self.squad[i : i + self.draw.randint(1, 3)]]
            self.draw.shuffle(contexts)
            text = "\n\n".join(contexts)
            form = self.draw.choice(("{t}\n\n{q}", "Context: {t}\n\nQuestion: {q}", "{q} Use this text:\n\n{t}"))
            yield row["title"], form.format(t=text, q=question)

    def summarise(self) -> Prompts:
        while True:
            if self.draw.random() < 0.3:
                row = self.draw.choice(self.scitldr)
                name, text = row["id"], row["source"]
            else:
                name, text = self.passage()
            yield name, self.draw.choice(SUMMARISE).format(text)

    def meeting(self) -> Prompts:
        while True:
            row = self.draw.choice(self.meetings)
            query = self.draw.choice(row["specific_query_list"] or row["general_query_list"])
            spans = query.get("relevant_text_span") or [["0", "20"]]
            turns = row["meeting_transcripts"][int(spans[0][0]) : int(spans[0][1]) + 1]
            words = "\n".join(f"{turn['speaker']}: {turn['content']}" for turn in turns).split(" ")
            if len(words) >= WORDS[0]:
                yield row["id"], f"{' '.join(words[: 2 * WORDS[1]])}\n\n{query['query']}"

    def dialogue(self) -> Prompts:
        forms = (
            "Summarize this conversation:\n\n{}",
            "{}\n\nWhat does the user want?",
            "Continue this dialogue:\n\n{}",
        )
        while True:
            row = self.draw.choice(self.dialogues)
            text = " ".join(row["text"].split(" ")[: WORDS[1]])
            yield row["id"], self.draw.choice(forms).format(text)

    def continued(self) -> Prompts:
        while True:
            name, text = self.passage(("fiction", "fiction", "wiki"))
            yield name, self.draw.choice(CONTINUE).format(text)

    def rewrite(self) -> Prompts:
        while True:
            name, text = self.passage()
            yield name, self.draw.choice(REWRITE).format(" ".join(text.split(" ")[:160]))

    def explain(self) -> Prompts:
        while True:
            name, text = self.passage()
            yield name, self.draw.choice(EXPLAIN).format(" ".join(text.split(" ")[:200]))

    def write(self) -> Prompts:
        while True:
            topics = self.draw.sample(self.titles if self.draw.random() < 0.4 else self.topics, 2)
            form = self.draw.choice(ABOUT)
            yield topics[0], form.format(*topics[: form.count("{}")])

    def code(self) -> Prompts:
        every = [
            (task, form, language)
            for task in listed(CODE_TASKS)
            for form in CODE
            for language in dict.fromkeys(LANGUAGES)
        ]
        self.draw.shuffle(every)
        for task, form, language in every:
            yield task, form.format(language=language, task=task)

    def translate(self) -> Prompts:
        while True:
            name, text = self.passage(("wiki", "govweb", "fiction"))
            sentence = self.draw.choice([part for part in re.split(r"(?<=[.!?])\s+", text) if part])
            if 6 <= len(sentence.split()) <= 40:
                yield name, f"Translate into {self.draw.choice(TONGUES)}: {sentence}"


def held_out(name: str) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 20 == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    draw = random.Random("chat prompts")
    sets = Sets(args.data, draw)
    makers: dict[str, Callable[[], Prompts]] = {
        task: getattr(sets, "continued" if task == "continue" else task) for task in SHARES
    }
    lines: dict[bool, list[Row]] = {False: [], True: []}
    for task, count in SHARES.items():
        seen: set[str] = set()
        for name, prompt in makers[task]():
            if prompt not in seen:
                seen.add(prompt)
                lines[held_out(name)].append({"task": task, "prompt": prompt})
            if len(seen) == count:
                break
    args.out.mkdir(parents=True, exist_ok=True)
    for valid, name in ((False, "train"), (True, "valid")):
        draw.shuffle(lines[valid])
        with open(args.out / f"{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines[valid])
        print(f"{args.out / name}.jsonl: {len(lines[valid]):,} prompts")


if __name__ == "__main__":
    main()
