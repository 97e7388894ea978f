"""How a run uses the time there is: which method, for how long, and what that takes."""
