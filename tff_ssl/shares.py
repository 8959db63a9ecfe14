"""Shares of a whole number, such as of the clients of a round."""

import fractions

# .145 and a third are told apart from their neighbours, and products with
# numbers of clients fit into int64.
_LARGEST_DENOMINATOR = 10**6


def exact(share: float) -> fractions.Fraction:
  """Returns the fraction that a person means by a decimal number.

  As a float .14 is a little more than 14 / 100, and .14 * 50 more than 7; .145
  is less than it says, and .145 * 200 less than 29. Whoever counts clients by
  such products miscounts by one.

  Args:
    share: Such as .14.

  Returns:
    Such as 7 / 50; its denominator is at most a million.
  """
  return fractions.Fraction(share).limit_denominator(_LARGEST_DENOMINATOR)
