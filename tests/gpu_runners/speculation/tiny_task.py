"""A JSON task for kolm-tiny-1: requests in a few patterns, and what it answers."""

import random

from gpu_runners.models.causal_base import CausalBase
from gpu_runners.models.chat import prompt_ids

SYSTEM = (
    "Turn the message into a record.\nAnswer with JSON alone that has these fields: "
    "delivery_city, delivery_day, main_dish, number_of_people"
)
CITIES = ("Bonn", "Lima", "Oslo", "Quito", "Turin", "Leeds", "Graz", "Porto")
DAYS = ("monday", "tuesday", "friday", "sunday", "tomorrow", "today")
DISHES = ("soup", "rice", "pasta", "fish", "salad", "bread")
PATTERNS = (
    "the delivery city is {city}. the delivery day is {day}. the main dish is {dish}. the number of people is {people}",
    "delivery city: {city}; main dish: {dish}; delivery day: {day}; number of people: {people}",
    "number of people is {people}, main dish is {dish}, delivery city is {city}, delivery day is {day}",
)


def requests(n: int, *, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [
        rng.choice(PATTERNS).format(
            city=rng.choice(CITIES), day=rng.choice(DAYS), dish=rng.choice(DISHES), people=rng.randint(2, 9)
        )
        for _ in range(n)
    ]


def prompts(base: CausalBase, n: int, *, seed: int = 0) -> list[list[int]]:
    return [prompt_ids(base, SYSTEM, text) for text in requests(n, seed=seed)]
