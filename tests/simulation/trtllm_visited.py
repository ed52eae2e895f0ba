"""TensorRT-LLM's scheduler visiting every request at every step: what `kvplan.simulation.trtllm` says with
a clock for all answers, to be held against it."""

from __future__ import annotations

from collections import deque

from kvplan.errors import KvplanError
from kvplan.plans.arrival import Arrival
from kvplan.simulation.time.batched import Batched
from kvplan.simulation.time.chain import Chain
from kvplan.simulation.time.clock import Clock
from kvplan.simulation.time.timeline import Trace
from kvplan.simulation.trtllm.settings import EQUAL, MAX_UTILIZATION, STATIC, TrtllmEngine
from tests.simulation.trtllm_by_blocks import Batch, Block, Blocks, Request


class Scheduler:
    """queue: who has come and is not looked at yet; active: who is, at most max_batch_size, in their order;
    paused:
    since the last batch."""

    def __init__(self, engine: TrtllmEngine) -> None:
        self.engine = engine
        self.memory = Blocks(engine)
        self.queue: deque[Request] = deque()
        self.active: list[Request] = []
        self.aborted = ()
        self.paused: list[Request] = []
        self.unfinished = 0

    @property
    def running(self) -> list[Request]:
        return [request for request in self.active if request.begun]

    @property
    def waiting(self) -> list[Request]:
        return [*(request for request in self.active if not request.begun), *self.queue]

    @property
    def stuck(self) -> bool:
        return bool(self.unfinished)

    @property
    def full(self) -> bool:
        return len(self.active) >= self.engine.sequences

    def add(self, request: Request) -> None:
        self.queue.append(request)
        self.unfinished += 1

    def idle(self) -> None:
        """Nothing is left to do."""

    def schedule(self, queued: Batch | None) -> Batch | None:
        """The next batch. The results of the one that is under way are not known, and not needed."""
        while self.queue and not self.full:
            self.active.append(self.queue.popleft())
        fitting = self._by_steps() if self.engine.policy == MAX_UTILIZATION else self._to_the_end()
        prompts, answers = self._micro_batch(fitting)
        if not prompts and not answers:
            return None
        batch = Batch()
        for request in prompts:
            self._prompt(request, batch)
        for request in answers:
            self.memory.grow(request)
            self._coming(request, batch, 1, request.written)
        batch.preempted, self.paused = self.paused, []
        return batch

    def _prompt(self, request: Request, batch: Batch) -> None:
        if not request.begun:
            found = self.memory.enter(request)
            batch.admitted.append((request, found))
            request.position = request.reused = found
            if found and found + request.chunk < request.prompt:  # a chunk ends where a block does
                size = self.engine.block
                request.chunk = (found + request.chunk) // size * size - found
            request.chunk = min(request.chunk, request.prompt - found)
        tokens = request.chunk
        request.position += tokens
        batch.parts.append((request, tokens))
        if request.prefilling:
            request.computed = request.position
            batch.tokens += tokens
            batch.count += 1
            batch.context += request.position
        else:
            batch.stored.append(request)
            self._coming(request, batch, tokens, request.position)

    @staticmethod
    def _coming(request: Request, batch: Batch, tokens: int, computed: int) -> None:
        """A token of its answer comes with this batch."""
        request.coming += 1
        request.ending = request.coming >= request.asked
        request.computed = computed
        batch.making.append(request)
        batch.tokens += tokens
        batch.count += 1
        batch.context += computed

    # --- whom there is room for ---

    def _to_the_end(self) -> list[Request]:
        """GUARANTEED_NO_EVICT: whoever is at work, and then who fits with a whole answer; STATIC_BATCH: these
        only once nobody makes an answer."""
        static = self.engine.policy == STATIC
        fitting = [request for request in self.active if not request.prefilling]
        pending = [request for request in self.active if request.prefilling]
        if not pending or (static and fitting):
            return fitting
        free = self.memory.free - sum(map(self._to_come, fitting))
        skipped = not static and self.engine.caching
        begun = self._being_computed() if skipped else set()
        for request in pending:
            if skipped and self._better_later(request, begun):
                continue
            needed = self._to_come(request)
            if needed > free:
                break
            fitting.append(request)
            free -= needed
        return fitting

    def _to_come(self, request: Request) -> int:
        """Blocks that it still takes to its end; what the cache may have of it does not count."""
        tokens = min(request.prompt + request.asked, self.engine.length)
        return -(-tokens // self.engine.block) - len(request.blocks)

    def _being_computed(self) -> set[tuple[int, int]]:
        """First new blocks of prompts that are partly computed."""
        partly = (one for one in self.active if one.prefilling and one.begun)
        return {new for new in map(self.memory.next_new, partly) if new is not None}

    def _better_later(self, request: Request, begun: set[tuple[int, int]]) -> bool:
        """Whether somebody is about to compute its first new block (beneficialToSkip)."""
        if request.begun:
            return False
        new = self.memory.next_new(request)
        if new is None:
            return False
        if new in begun:
            return True
        begun.add(new)
        return False

    def _by_steps(self) -> list[Request]:
        """MAX_UTILIZATION: who has room for the next step; where one has not, the last of those at work
        pauses."""
        free, spent = self.memory.free, 0
        begun = self._being_computed() if self.engine.caching else set()
        fitting: list[Request] = []
        let_go: dict[Block, int] = {}
        active, place, end = self.active, 0, len(self.active)
        paused: list[Request] = []
        while place < end:
            request = active[place]
            if self.engine.caching and self._better_later(request, begun):
                place += 1
                continue
            needed = self._next_step(request)
            if spent + needed <= free:
                spent += needed
                fitting.append(request)
                place += 1
                continue
            last = next((at for at in range(end - 1, place - 1, -1) if active[at].begun), None)
            if last is None:
                break
            for block in active[last].blocks:
                let_go[block] = let_go.get(block, 0) + 1
                free += let_go[block] == block.holders
            paused.append(active[last])
            end = last
        for request in paused:
            self.memory.leave(request)
            request.pause()
        self.paused += paused
        return fitting

    def _next_step(self, request: Request) -> int:
        size = self.engine.block
        if not request.begun:
            return -(-request.prompt // size)
        return 0 if request.prefilling else int(request.written % size == 0)

    # --- who fits into the step ---

    def _micro_batch(self, fitting: list[Request]) -> tuple[list[Request], list[Request]]:
        limit, chunking = self.engine.batch, self.engine.chunking
        prompts: list[Request] = []
        answers: list[Request] = []
        tokens, asked = 0, 0
        for request in fitting:
            if request.ending:
                continue
            if not request.prefilling:
                if tokens + 1 > limit:
                    break
                answers.append(request)
                tokens += 1
                continue
            request.chunk = request.prompt - request.position
            if chunking is None:
                if request.chunk > limit:
                    raise KvplanError(
                        "engine-fails",
                        f"a paused request has {request.chunk:,} tokens to compute again, more than"
                        f" max_num_tokens {limit:,}: TensorRT-LLM stops here",
                        help=("--enable-chunked-prefill", "a larger pool"),
                    )
                if tokens + request.chunk > limit:
                    break
                tokens += request.chunk
            asked += request.chunk
            prompts.append(request)
        if chunking is None or asked <= limit - tokens:
            return prompts, answers
        self._cut(prompts, limit - tokens)
        prompts = [request for request in prompts if request.chunk]
        return _last_chunks_last(prompts), answers

    def _cut(self, prompts: list[Request], room: int) -> None:
        size, limit = self.engine.block, self.engine.batch
        if self.engine.chunking != EQUAL:
            for request in prompts:
                left = request.prompt - request.position
                chunk = min(room, limit, left)
                request.chunk = chunk if chunk == left else chunk // size * size
                room -= request.chunk
            return
        for request in prompts:
            request.chunk = 0
        given, more = 0, True
        while given < room and more:
            more = False
            for request in prompts:
                chunk = min(request.chunk + size, request.prompt - request.position)
                step = chunk - request.chunk
                if step and given + step <= room and chunk <= limit:
                    request.chunk, given, more = chunk, given + step, True

    # --- results ---

    def update(self, batch: Batch) -> list[tuple[Request, bool]]:
        """The batch has ended: who has made a token, and whether it was the last."""
        made: list[tuple[Request, bool]] = []
        for request in batch.making:
            request.made += 1
            if request.made - request.starts >= request.asked:
                request.done = True
                self.memory.leave(request)
                self.unfinished -= 1
            made.append((request, request.done))
        if any(done for _, done in made):
            self.active = [request for request in self.active if not request.done]
        for request in batch.stored:
            if not request.done:
                self.memory.store(request, request.prompt, partial=False)
        return made


def _last_chunks_last(prompts: list[Request]) -> list[Request]:
    """Prompts that go on before those that are done with this chunk, as std::partition swaps them."""
    found, low, high = list(prompts), 0, len(prompts)
    while True:
        while low < high and found[low].chunk < found[low].prompt - found[low].position:
            low += 1
        if low == high:
            return found
        high -= 1
        while low < high and not found[high].chunk < found[high].prompt - found[high].position:
            high -= 1
        if low == high:
            return found
        found[low], found[high] = found[high], found[low]
        low += 1


class VisitedReplica(Batched[Batch]):
    def __init__(self, trace: Trace, engine: TrtllmEngine, time: Clock) -> None:
        self.engine, self.scheduler = engine, Scheduler(engine)
        super().__init__(trace, engine, time, self.scheduler, jump=False, rows=True, overlap=engine.overlap)
        self.names = trace.names(1, 1) if engine.caching else None

    def come(self, number: int, row: Arrival) -> None:
        self.scheduler.add(self.request(number, row))

    def request(self, number: int, row: Arrival) -> Request:
        chain = Chain(() if self.names is None else self.names.paths[number], number)
        return Request(number, row.at_ns, row.prompt, self.engine.answered(row.prompt, row.answer), chain)

    def fast_forward(self) -> bool:
        return False

    @property
    def free(self) -> int:
        return self.limits.blocks  # nobody looks

    def begun(self) -> list[tuple[int, int]]:
        return []
