"""Data as a customer has it (a CSV of some Excel, chats, exports of other products) into examples, with what is wrong
with them counted. What is here reads and counts; it uploads nothing and knows no tenant."""
