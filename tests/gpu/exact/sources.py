"""The kernels of exact matching with their argument types, to be compiled without a device."""

from __future__ import annotations

from gpu.exact import bucket_table, chunk_match, device_tree, kmer_set, walk

NUMBER, WORD, WORDS, LONGS = "uint32", "uint64", "uint32[::1]", "uint64[::1]"
CHUNK = (WORDS, WORDS)
FOUND = (WORDS, LONGS, WORDS)  # matches, event words, their counter


def leaves(k):
    return LONGS if k % 3 == 0 else WORDS


def sources(k):
    """Every kernel for windows of k symbols by name: the plain function and its argument types."""
    stepwise = (*CHUNK, NUMBER, NUMBER, NUMBER, LONGS, *FOUND)
    table = {
        "naive": (
            chunk_match.naive,
            (*CHUNK, *(NUMBER,) * 4, WORDS, WORDS, LONGS, WORDS, "uint32[:, ::1]", *FOUND),
        ),
        "split": (chunk_match.split, (*CHUNK, NUMBER, NUMBER, WORDS, WORDS, WORDS)),
        "merge": (chunk_match.merge, (WORDS, NUMBER, NUMBER, WORDS)),
        "interleave": (device_tree.interleave, (WORDS, LONGS, WORDS, LONGS)),
        "expand": (device_tree.expand, (NUMBER, NUMBER, LONGS, WORDS, LONGS)),
        "clear": (device_tree.clear_words, (WORDS,)),
        "jump": (device_tree.jump(walk.jump_level(k)), (LONGS, LONGS)),
        "shuffle": (chunk_match.shuffle(k, False), stepwise),
        "shuffle_words": (chunk_match.shuffle(k, True), stepwise),
    }
    for canonical in (False, True):
        name = "walk_canonical" if canonical else "walk"
        table[name] = (walk.walk_bits(k, canonical), (*CHUNK, LONGS, LONGS, leaves(k), WORDS))
        table[f"{name}_words"] = (walk.walk_words(k, canonical), (*CHUNK, LONGS, *FOUND))
    return table


def bucket_sources(shape):
    """The kernels for one shape of bucket table."""
    looked_up = (*CHUNK, LONGS, LONGS, LONGS, leaves(shape.k), WORDS)
    return {
        "buckets": (bucket_table.lookup(shape, False), looked_up),
        "buckets_canonical": (bucket_table.lookup(shape, True), looked_up),
        "insert": (bucket_table.insert(shape), (NUMBER, WORDS, LONGS, LONGS, WORDS)),
        "finish": (bucket_table.finish(shape), (LONGS, WORDS)),
    }


def kmer_set_sources(k, canonical):
    """The kernels of the growing set."""
    table = (LONGS, WORD)
    claimed = (*CHUNK, *table, WORD, WORDS)
    arguments = {
        "claim": claimed,
        "claim_filtered": claimed,
        "decide": (*claimed, WORDS, WORDS),
        "compact": (*CHUNK, WORDS, WORDS, LONGS),
        "find": (*CHUNK, *table, WORDS),
        "values": (*CHUNK, *table, WORDS),
    }
    return {
        name: (getattr(kmer_set, name)(k, canonical), types) for name, types in arguments.items()
    } | {
        "add": (kmer_set.add, (LONGS, LONGS, *table)),
        "rehash": (kmer_set.rehash, (LONGS, *table)),
        "wipe": (kmer_set.wipe, (LONGS,)),
    }
