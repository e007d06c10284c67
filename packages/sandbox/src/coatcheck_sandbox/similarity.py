"""How much of a text was recognised."""

import unicodedata


def character_accuracy(recognised: str, truth: str) -> float:
    """The share of characters that came out right: 1.0 is the same text, 0.0 has nothing in common.

    It is 1 minus the edit distance divided by the length of the longer text. Runs of white space count as one
    blank, and characters that differ in form only (full-width letters, ligatures) are equal.
    """
    left, right = _plain(recognised), _plain(truth)
    longest = max(len(left), len(right))
    return 1.0 if not longest else 1.0 - edit_distance(left, right) / longest


def edit_distance(left: str, right: str) -> int:
    """The least number of characters to insert, delete or replace that turns one text into the other.

    Myers' bit-vector algorithm in Hyyrö's form ("A Bit-Vector Algorithm for Computing Levenshtein and Damerau
    Edit Distances", 2003): one row of the classic table is two big integers.
    """
    if not left:
        return len(right)
    places: dict[str, int] = {}
    for index, character in enumerate(left):
        places[character] = places.get(character, 0) | 1 << index
    all_rows, last_row = (1 << len(left)) - 1, 1 << (len(left) - 1)
    rises, falls, distance = all_rows, 0, len(left)
    for character in right:
        equal = places.get(character, 0)
        vertical = equal | falls
        horizontal = (((equal & rises) + rises) ^ rises) | equal
        plus = falls | ~(horizontal | rises) & all_rows
        minus = rises & horizontal
        distance += 1 if plus & last_row else -1 if minus & last_row else 0
        plus = (plus << 1 | 1) & all_rows
        minus = minus << 1 & all_rows
        rises = minus | ~(vertical | plus) & all_rows
        falls = plus & vertical
    return distance


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())
