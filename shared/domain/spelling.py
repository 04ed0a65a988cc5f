"""Spelling: whether a name is a misspelling of another."""


def is_nearly(written: str, meant: str) -> bool:
    """Whether they are equal, or differ in one letter (wrong, missing or extra) or in two swapped letters."""
    shorter, longer = sorted((written, meant), key=len)
    if len(longer) > len(shorter):
        return any(longer[:place] + longer[place + 1 :] == shorter for place in range(len(longer)))
    wrong = [place for place, letter in enumerate(written) if letter != meant[place]]
    are_swapped = len(wrong) == 2 and written[wrong[0] : wrong[1] + 1] == meant[wrong[0] : wrong[1] + 1][::-1]
    return len(wrong) <= 1 or are_swapped
