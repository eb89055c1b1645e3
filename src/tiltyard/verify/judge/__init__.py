"""A model's opinion of a submission, as one component that never decides correctness."""
