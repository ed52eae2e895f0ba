"""Prime numbers from a number on, by Miller and Rabin's test, which is exact below the limit given here."""

from __future__ import annotations

from itertools import count, islice

EXACT_BELOW = 3_215_031_751
"""With the witnesses 2, 3, 5 and 7 (Pomerance, Selfridge, Wagstaff 1980)."""
_WITNESSES = (2, 3, 5, 7)


def is_prime(number: int) -> bool:
    """Exact for numbers below `EXACT_BELOW`."""
    if number < 2 or any(number % small == 0 for small in _WITNESSES):
        return number in _WITNESSES
    odd = number - 1
    twos = (odd & -odd).bit_length() - 1
    odd >>= twos
    return all(_passes(pow(witness, odd, number), twos, number) for witness in _WITNESSES)


def _passes(power: int, twos: int, number: int) -> bool:
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def primes_from(first: int, how_many: int) -> list[int]:
    """The first primes that are not below that number."""
    return list(islice(filter(is_prime, count(first)), how_many))
