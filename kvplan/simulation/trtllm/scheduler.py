"""TensorRT-LLM's scheduler, one batch at a time: who has room to the end, then who fits into the step.

NVIDIA/TensorRT-LLM around 1.2: cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp
(GuaranteedNoEvictScheduler, StaticBatchScheduler, MaxUtilizationScheduler), microBatchScheduler.cpp,
scheduledBlocksManager.h, kvCacheManager.cpp, utils/inflightBatchingUtils.cpp (sortRequests),
include/…/llmRequest.h (setPrepopulatedPromptLen, willCompleteNextIteration) and
tensorrt_llm/_torch/pyexecutor/py_executor.py (_executor_loop, _executor_loop_overlap). Read, never run.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from operator import attrgetter

from kvplan.errors import KvplanError
from kvplan.simulation.trtllm.answers import Answers
from kvplan.simulation.trtllm.blocks import Blocks
from kvplan.simulation.trtllm.request import Batch, Request, cut
from kvplan.simulation.trtllm.settings import MAX_UTILIZATION, STATIC, TrtllmEngine
from kvplan.simulation.trtllm.span import Span

_order = attrgetter("order")


class Scheduler:
    """queue: who has come and is not looked at yet; prompts, answers, ending: who is, at most max_batch_size:
    those with prompt tokens to compute, in their order, those that make answers, those whose last token is
    under way; steady: the next batch is the last one again, unless somebody comes or a result changes it;
    paused: since the last batch."""

    def __init__(self, engine: TrtllmEngine) -> None:
        self.engine = engine
        self.memory = Blocks(engine)
        self.queue: deque[Request] = deque()
        self.prompts: list[Request] = []
        self.answers = Answers(self.memory, engine.length)
        self.ending: dict[Request, None] = {}
        self.aborted = ()
        self.paused: list[Request] = []
        self.unfinished = self.came = 0
        self.steady = False

    @property
    def active(self) -> list[Request]:
        return sorted([*self.prompts, *self.answers.requests, *self.ending], key=_order)

    @property
    def running(self) -> list[Request]:
        return [request for request in self.active if request.begun]

    @property
    def waiting(self) -> list[Request]:
        return [*(request for request in self.prompts if not request.begun), *self.queue]

    @property
    def stuck(self) -> bool:
        return bool(self.unfinished)

    @property
    def full(self) -> bool:
        return len(self.prompts) + len(self.answers) + len(self.ending) >= self.engine.sequences

    def add(self, request: Request) -> None:
        request.order = self.came = self.came + 1
        self.queue.append(request)
        self.unfinished += 1

    def idle(self) -> None:
        """Nothing is left to do."""

    def schedule(self, queued: Batch | None) -> Batch | None:
        """The next batch. The results of the one that is under way are not known, and not needed."""
        self.steady = False
        while self.queue and not self.full:
            self.prompts.append(self.queue.popleft())
        prompts, left_out = self._fitting()
        answers = len(self.answers) - len(left_out)
        if not prompts and not answers:
            return None
        batch = Batch()
        for request in prompts:
            self._prompt(request, batch)
        if answers:
            self._answer(batch, answers, left_out)
        for request in batch.making:
            self._joins(request)
        batch.preempted, self.paused = self.paused, []
        self.steady = not prompts and not batch.preempted and not left_out and not self.ending
        if self.engine.policy == MAX_UTILIZATION and self.prompts:
            self.steady = False
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
        request.computed = request.position
        batch.parts.append((request, tokens))
        batch.tokens += tokens
        batch.count += 1
        batch.context += request.position
        if not request.prefilling:
            request.coming += 1
            batch.making.append(request)

    def _answer(self, batch: Batch, count: int, left_out: list[Request]) -> None:
        """A token for each that makes an answer, and is not left out."""
        answers = self.answers
        for request in left_out:
            answers.leave(request)
        answers.step()
        batch.answers = count
        batch.tokens += count
        batch.count += count
        batch.context += answers.written
        batch.ended = answers.ended()
        for request in batch.ended:
            request.ending = True
            self.ending[request] = None
        for request in left_out:
            answers.join(request)

    def _joins(self, request: Request) -> None:
        """Its prompt is done with this batch, and its first token comes."""
        self.prompts.remove(request)
        self.answers.promised += self.answers.to_come(request)
        if request.coming >= request.asked:
            request.ending = True
            self.ending[request] = None
        else:
            self.answers.join(request)

    # --- whom there is room for ---

    def _fitting(self) -> tuple[list[Request], list[Request]]:
        """Whose prompts go on with this step, and who makes an answer and is left out."""
        answers, limit = self.answers, self.engine.batch
        if self.engine.policy == MAX_UTILIZATION:
            if self.prompts or len(answers) > limit or answers.needed() > self.memory.free:
                return self._micro_batch(self._by_steps(), 0)
            return [], []
        if len(answers) > limit:
            return [], sorted(answers.requests, key=_order)[limit:]
        return self._micro_batch(self._to_the_end(), len(answers))[0], []

    def _to_the_end(self) -> list[Request]:
        """GUARANTEED_NO_EVICT: besides whoever makes an answer, who fits with a whole one
        (getRemainingBlocksToCompletion); STATIC_BATCH: these only once nobody makes an answer."""
        static = self.engine.policy == STATIC
        fitting: list[Request] = []
        if not self.prompts or (static and (self.answers or self.ending)):
            return fitting
        free = self.memory.free - self.answers.promised
        skipped = not static and self.engine.caching
        begun = self._being_computed() if skipped else set()
        for request in self.prompts:
            if skipped and self._better_later(request, begun):
                continue
            needed = self.answers.to_come(request)
            if needed > free:
                break
            fitting.append(request)
            free -= needed
        return fitting

    def _being_computed(self) -> set[tuple[int, int]]:
        """First new blocks of prompts that are partly computed."""
        partly = (one for one in self.prompts if one.begun)
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
        let_go: dict[Span, int] = {}
        active, place = self.active, 0
        end = len(active)
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
            if active[last] in self.answers.requests:
                self._visited(active[last])
            for span in active[last].spans:
                let_go[span] = let_go.get(span, 0) + 1
                free += (span.stop - span.start) * (let_go[span] == len(span.holders))
            paused.append(active[last])
            end = last
        for request in paused:
            self.memory.leave(request)
            request.pause()
        self.paused += paused
        return fitting

    def _visited(self, request: Request) -> None:
        """One that makes an answer is to have a prompt again (llmRequest.h, pause)."""
        self.answers.leave(request)
        self.answers.promised -= self.answers.to_come(request)
        request.made = request.starts + request.coming
        insort(self.prompts, request, key=_order)

    def _next_step(self, request: Request) -> int:
        """Blocks (kvCacheManager.cpp, getNeededBlocksOneStep)."""
        if request.begun:
            return 0 if request.prefilling else int(self.answers.needs(request))
        return -(-request.prompt // self.engine.block)

    # --- who fits into the step ---

    def _micro_batch(self, fitting: list[Request], tokens: int) -> tuple[list[Request], list[Request]]:
        """Of those that fit, beside so many tokens, whose prompts go on; who makes an answer and does not
        fit."""
        limit, chunking = self.engine.batch, self.engine.chunking
        prompts: list[Request] = []
        left_out = dict(self.answers.requests) if self.engine.policy == MAX_UTILIZATION else {}
        asked = 0
        for request in fitting:
            if not request.prefilling:
                if tokens + 1 > limit:
                    break
                del left_out[request]
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
        if chunking is not None and asked > limit - tokens:
            prompts = cut(self.engine, prompts, limit - tokens)
        return prompts, list(left_out)

    # --- results ---

    def update(self, batch: Batch) -> list[tuple[Request, bool]]:
        """The batch has ended: who has made a first or last token, and whether it was the last."""
        made: list[tuple[Request, bool]] = []
        for request in batch.making:
            request.made += 1
            last = request.made - request.starts >= request.asked
            made.append((request, last and self._ends(request)))
        for request in batch.ended:
            request.made = request.starts + request.asked
            made.append((request, self._ends(request)))
        if batch.ended:
            self.steady = False
        for request in batch.making:
            self.steady = False
            if not request.done:  # now that the results are known, its whole prompt can be found
                self.memory.store(request, request.prompt, partial=False)
        return made

    def _ends(self, request: Request) -> bool:
        self.answers.promised -= self.answers.to_come(request)
        request.done = True
        del self.ending[request]
        self.memory.leave(request)
        self.unfinished -= 1
        return True
