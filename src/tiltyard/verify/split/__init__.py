"""Split mode: the solution in a fresh sandbox, its tests in a trusted process, values between."""
