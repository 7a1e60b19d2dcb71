"""
First
=====

Text.
"""

# %%
# Hello.
print(1)
