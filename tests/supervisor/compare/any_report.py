"""Reports as Hypothesis draws them: any words, any figures."""

from hypothesis import strategies as st

from supervisor.compare.facts import CompareReport, Fault, Latency, Memory, Restart, Storm, Way

COUNTS = st.integers(0, 10_000)


def reports(words: st.SearchStrategy[str], figures: st.SearchStrategy[float]) -> st.SearchStrategy[CompareReport]:
    def some(kind: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
        return st.lists(kind, max_size=3).map(tuple)

    samples = st.lists(figures, max_size=4).map(tuple)
    return st.builds(
        CompareReport,
        conditions=some(st.tuples(words, words)),
        ways=some(st.builds(Way, words, words, words, words)),
        memory=some(st.builds(Memory, words, COUNTS, COUNTS, samples, samples, figures, st.none() | figures)),
        latencies=some(st.builds(Latency, words, words, words, samples)),
        storms=some(st.builds(Storm, words, COUNTS, st.lists(samples, max_size=2).map(tuple))),
        restarts=some(st.builds(Restart, words, COUNTS, samples, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)),
        faults=some(st.builds(Fault, words, words, words, words, words, words)),
        rest=some(st.floats(0, 1)),
    )
