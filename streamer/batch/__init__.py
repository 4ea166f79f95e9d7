"""Offline solvers: one subpackage per problem, with its paper's methods and a faster default."""
