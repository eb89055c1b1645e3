from solution import add


def test_numbers():
    assert add(5, 7) == 12


def test_texts():
    assert add("a", "b") == "ab"
