"""Copy recipes as an answer grows: what its input says comes next."""

from collections.abc import Sequence
from functools import cached_property

from backend.domain.recipes.copy_rules import Copy, CopyKind, Frame, end_of
from backend.domain.recipes.inputs import InputText, input_in
from backend.domain.recipes.shapes import ShapeTable

MAX_VALUE_TOKENS = 64  # of a value that is being written; a longer one is not looked for
_NUMBER = frozenset(b"0123456789.-")
_NONE: tuple[tuple[int, ...], int] = ((), -1)
_Cues = list[tuple[str, int]]


class CopyIndex:
    """The copy recipes of one pack, by what they match; `first` is the number of the first one."""

    def __init__(self, copies: Sequence[Copy], frame: Frame, shapes: ShapeTable, *, first: int) -> None:
        self.copies, self.frame, self.shapes, self.first = copies, frame, shapes, first
        self.begins: dict[str, _Cues] = {}
        self.ahead: dict[str, dict[str, int]] = {}
        self.says: dict[str, _Cues] = {}
        n_tokens = len(shapes.pieces.texts)
        for i, one in enumerate(copies):
            if one.what is CopyKind.FOLLOWS_WORD:
                if all(token < n_tokens for token in one.run):
                    self.says.setdefault(one.place, []).append((one.cue, i))
            elif one.what is CopyKind.BEGINS:
                self.begins.setdefault(one.place, []).append((one.cue, i))
            else:
                self.ahead.setdefault(one.place, {})[one.cue] = i
        self._places: dict[int, str] = {}
        self._saying: dict[int, _Cues] = {}

    def place_of(self, state: int) -> str:
        """The value that is being written, where it may be copied; "" elsewhere."""
        place = self._places.get(state)
        if place is None:
            value = self.shapes.value_at(state)
            place = self._places[state] = value if value in self.begins or value in self.ahead else ""
        return place

    def saying_at(self, state: int) -> _Cues:
        known = self._saying.get(state)
        if known is None:
            known = self._saying[state] = self.says.get(self.shapes.keyed_text(state), [])
        return known


class RequestCopies:
    """One request's input, read when it is first asked for."""

    def __init__(self, index: CopyIndex, prompt: Sequence[int]) -> None:
        self.index, self._prompt = index, prompt
        self._texts = index.shapes.pieces.texts
        self._begun: dict[str, tuple[int, int]] = {}
        self._decisions: dict[tuple[str, int, int], int] = {}

    def continue_copy(self, place: str, written: Sequence[int], most: int) -> tuple[tuple[int, ...], int]:
        """(tokens that go on from `written`, number of the recipe) at the value `place`."""
        value = self._value(place, written)
        begin, recipe = self._begun_at(place, value)
        if value is None or begin < 0:
            return _NONE
        return self._run(place, begin, begin + len(value), most, -1 if value else recipe)

    def is_at_end(self, place: str, written: Sequence[int]) -> bool:
        """Return whether what has come of the value is all that is copied."""
        value = self._value(place, written)
        begin, _ = self._begun_at(place, value)
        if not value or begin < 0 or not self._may_end(begin + len(value)):
            return False
        decided = self._decide(place, begin, begin + len(value))
        return decided >= 0 and self.index.copies[decided].what is CopyKind.ENDS

    def run_for(self, cues: Sequence[tuple[str, int]]) -> tuple[tuple[int, ...], int]:
        """Return what the first of `cues` that the input has says."""
        for cue, i in cues:
            if not cue or cue in self.words:
                return self.index.copies[i].run, self.index.first + i
        return _NONE

    def begin_of(self, place: str) -> tuple[int, int]:
        """(byte of the input at which the value begins, the recipe that says so), -1 for none."""
        known = self._begun.get(place)
        if known is None:
            anchors = self.text.anchors
            cues = self.index.begins.get(place, ())
            known = next(((anchors[cue], i) for cue, i in cues if cue in anchors), (-1, -1))
            self._begun[place] = known
        return known

    @cached_property
    def words(self) -> frozenset[str]:
        copied = {f"copies {place}" for place in self.index.begins if self.begin_of(place)[0] >= 0}
        return self.text.words | copied

    @cached_property
    def text(self) -> InputText:
        return InputText(b"".join(self._texts[token] for token in self._tokens))

    @cached_property
    def _tokens(self) -> Sequence[int]:
        span = input_in(self._prompt, self.index.frame)
        return [token for token in span or () if 0 <= token < len(self._texts)]

    @cached_property
    def _token_at(self) -> dict[int, int]:
        at, tokens = 0, dict[int, int]()
        for token in self._tokens:
            if self._texts[token]:
                tokens[at] = token
                at += len(self._texts[token])
        return tokens

    def _begun_at(self, place: str, value: bytes | None) -> tuple[int, int]:
        """(byte at which the value that has come so far begins, the recipe that says so), -1 for none."""
        begin, recipe = self.begin_of(place)
        if value:
            places = self.text.places_of(value)
            return (begin, recipe) if begin in places else (places[0] if places else -1, -1)
        is_number = begin >= 0 and self.text.data[begin] in _NUMBER
        return (begin, recipe) if is_number or place.startswith("text") else (-1, -1)

    def _run(self, place: str, begin: int, at: int, most: int, recipe: int) -> tuple[tuple[int, ...], int]:
        """Draft from byte `at` of the input on, as long as the value goes on."""
        run = list[int]()
        is_begun = at > begin
        while len(run) < most:
            if is_begun and self._may_end(at):
                decided = self._decide(place, begin, at)
                recipe = decided if recipe < 0 else recipe
                kind = self.index.copies[decided].what if decided >= 0 else CopyKind.OPEN
                if kind is CopyKind.ENDS and not run:
                    return self.run_for(self.index.says.get(end_of(place), ()))
                if kind is not CopyKind.GOES_ON:
                    break
            token = self._piece(at)
            if token < 0:
                break
            run.append(token)
            at += len(self._texts[token])
            is_begun = True
        return (tuple(run), self.index.first + max(recipe, 0)) if run else _NONE

    def _may_end(self, at: int) -> bool:
        return self.text.is_boundary(at) and not self.text.is_inside(at)

    def _decide(self, place: str, begin: int, at: int) -> int:
        known = self._decisions.get((place, begin, at))
        if known is None:
            ahead = self.index.ahead.get(place, {})
            cues = self.text.ahead(at, self.text.n_units(begin, at))
            known = self._decisions[place, begin, at] = next((ahead[cue] for cue in cues if cue in ahead), -1)
        return known

    def _piece(self, at: int) -> int:
        """The input's own token from byte `at` on; where that began before, what its rest is called."""
        data, starts = self.text.data, self._token_at
        token = starts.get(at)
        if token is not None or at >= len(data):
            return -1 if token is None else token
        end = at + 1
        while end < len(data) and end not in starts:
            end += 1
        return self.index.shapes.pieces.longest(data[at:end])

    def _value(self, place: str, written: Sequence[int]) -> bytes | None:
        """Return what has come of the value; None where it cannot be told."""
        texts, tail = self._texts, b""
        before = b" " if place.startswith("number") else b'"'
        for i in range(len(written) - 1, max(-1, len(written) - 1 - MAX_VALUE_TOKENS), -1):
            tail = (texts[written[i]] if 0 <= written[i] < len(texts) else b"") + tail
            begin = tail.rfind(before)
            if begin >= 0:
                return tail[begin + 1 :]
        return None
