"""The questions to a teacher, and how its answers to them are read. Text of customers and of teachers is data in every
one of them."""
