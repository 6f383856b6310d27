"""The guided first compile: data, task, teacher, budget, and what it would cost."""
