"""Argon2 with next to no memory: what is tested is who may log in, not how long a guess takes."""

from django.contrib.auth.hashers import Argon2PasswordHasher


class QuickArgon2(Argon2PasswordHasher):
    time_cost, memory_cost, parallelism = 1, 8, 1
