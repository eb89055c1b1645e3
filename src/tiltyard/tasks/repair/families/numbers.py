"""Families over integers: digits, divisors, ranges and conditions."""

from tiltyard.tasks.repair.inputs import near, whole
from tiltyard.tasks.repair.template import LIMITS, SUMS, Template, Topic

NUMBERS_TRAINED: tuple[Template, ...] = (
    Template(
        family="sum_to",
        topic=Topic.NUMBERS,
        says="Return the sum of the whole numbers from 1 to n, each times $k.",
        source="""
def sum_to(n):
    $total = 0
    for i in range(1, n + 1):
        $total += i * $k
    return $total
""",
        args=lambda rng, _: (whole(rng, 0, 20),),
        options={
            "total": SUMS,
            "k": ("2", "3", "4", "5"),
        },
    ),
    Template(
        family="digit_sum",
        topic=Topic.NUMBERS,
        says="Return the sum of the decimal digits of n, plus $k.",
        source="""
def digit_sum(n):
    $total = $k
    while n > 0:
        $total += n % 10
        n = n // 10
    return $total
""",
        args=lambda rng, _: (whole(rng, 0, 9999),),
        options={
            "total": SUMS,
            "k": ("0", "1", "2", "5"),
        },
    ),
    Template(
        family="clamp",
        topic=Topic.NUMBERS,
        says="Return x, but not less than low and not more than high.",
        source="""
def clamp($x, low, high):
    if $x < low: return low
    if $x > high: return high
    return $x
""",
        args=lambda rng, _: (whole(rng, -15, 15), whole(rng, -9, 0), whole(rng, 1, 9)),
        options={
            "x": ("x", "n", "value", "num"),
        },
    ),
    Template(
        family="grade",
        topic=Topic.NUMBERS,
        says="Return 2 for a score of $high or more, 1 for $low or more, else 0.",
        source="""
def grade($score):
    if $score >= $high: return 2
    if $score >= $low: return 1
    return 0
""",
        args=lambda rng, picked: (near(rng, rng.choice([picked["low"], picked["high"]]), 8),),
        options={
            "score": ("score", "points", "n"),
            "low": ("40", "50", "60"),
            "high": ("80", "85", "90"),
        },
    ),
    Template(
        family="count_divisors",
        topic=Topic.NUMBERS,
        says="Return how many whole numbers from 1 to n divide n.",
        source="""
def count_divisors(n):
    $count = 0
    for $i in range(1, n + 1):
        if n % $i == 0:
            $count += 1
    return $count
""",
        args=lambda rng, _: (whole(rng, 1, 60),),
        options={
            "count": ("count", "total", "result"),
            "i": ("i", "d", "k"),
        },
    ),
    Template(
        family="steps_down",
        topic=Topic.NUMBERS,
        says="Return how many steps n takes to reach 0: an even n is halved, an odd n loses 1.",
        source="""
def steps_down(n):
    $steps = 0
    while n > 0:
        if n % 2 == 0:
            n = n // 2
        else:
            n = n - 1
        $steps += 1
    return $steps
""",
        args=lambda rng, _: (whole(rng, 0, 300),),
        options={
            "steps": ("steps", "count", "total"),
        },
    ),
    Template(
        family="power",
        topic=Topic.NUMBERS,
        says="Return base to the power of n, n being 0 or more.",
        source="""
def power(base, n):
    $result = 1
    for $i in range(n):
        $result = $result * base
    return $result
""",
        args=lambda rng, _: (whole(rng, -4, 6), whole(rng, 0, 5)),
        options={
            "result": ("result", "total", "out"),
            "i": ("i", "k", "step"),
        },
    ),
    Template(
        family="bill",
        topic=Topic.NUMBERS,
        says="Return the price of n pieces at $price each; from $limit pieces on, take $off off.",
        source="""
def bill(n):
    $total = n * $price
    if n >= $limit: $total -= $off
    return $total
""",
        args=lambda rng, picked: (whole(rng, 0, 2 * int(picked["limit"])),),
        options={
            "total": SUMS,
            "price": ("3", "4", "6", "7"),
            "limit": ("5", "10", "12"),
            "off": ("2", "5", "8"),
        },
    ),
    Template(
        family="median_of_three",
        topic=Topic.NUMBERS,
        says="Return the middle one of three numbers.",
        source="""
def median_of_three(a, b, c):
    $low = min(a, b)
    $high = max(a, b)
    if c < $low: return $low
    if c > $high: return $high
    return c
""",
        args=lambda rng, _: (whole(rng), whole(rng), whole(rng)),
        options={
            "low": ("low", "small", "first"),
            "high": ("high", "big", "last"),
        },
    ),
    Template(
        family="gap",
        topic=Topic.NUMBERS,
        says="Return the distance of a and b, but 0 when it is $limit or less.",
        source="""
def gap(a, b):
    $d = abs(a - b)
    if $d <= $limit: return 0
    return $d
""",
        args=lambda rng, _: (whole(rng), whole(rng)),
        options={
            "d": ("d", "diff", "dist"),
            "limit": ("2", "3", "4"),
        },
    ),
    Template(
        family="next_multiple",
        topic=Topic.NUMBERS,
        says="Return the smallest multiple of $k that is greater than n.",
        source="""
def next_multiple(n):
    $m = n + 1
    while $m % $k != 0:
        $m += 1
    return $m
""",
        args=lambda rng, _: (whole(rng, 0, 60),),
        options={
            "m": ("m", "x", "result"),
            "k": ("3", "4", "5", "6", "7"),
        },
    ),
    Template(
        family="count_primes",
        topic=Topic.NUMBERS,
        says="Return how many prime numbers are less than n.",
        source="""
def is_prime(n):
    if n < 2: return False
    for d in range(2, n):
        if n % d == 0: return False
    return True

def count_primes(n):
    $count = 0
    for $i in range(n):
        if is_prime($i): $count += 1
    return $count
""",
        args=lambda rng, _: (whole(rng, 0, 26),),
        options={
            "count": ("count", "total", "result"),
            "i": ("i", "k", "m"),
        },
    ),
)

NUMBERS_UNSEEN: tuple[Template, ...] = (
    Template(
        family="digit_count",
        topic=Topic.NUMBERS,
        says="Return how many decimal digits of n are $k.",
        source="""
def digit_count(n):
    $count = 0
    while n > 0:
        if n % 10 == $k: $count += 1
        n = n // 10
    return $count
""",
        args=lambda rng, picked: (
            int("".join(rng.choice([picked["k"], "7", "8"]) for _ in range(rng.randint(1, 6)))),
        ),
        options={
            "count": ("count", "total", "result"),
            "k": ("1", "2", "3", "4"),
        },
    ),
    Template(
        family="sum_multiples",
        topic=Topic.NUMBERS,
        says="Return the sum of the multiples of $k from 1 to $limit.",
        source="""
def sum_multiples($limit):
    $total = 0
    for i in range(1, $limit + 1):
        if i % $k == 0:
            $total += i
    return $total
""",
        args=lambda rng, _: (whole(rng, 0, 40),),
        options={
            "total": SUMS,
            "limit": LIMITS,
            "k": ("3", "4", "5"),
        },
    ),
)
