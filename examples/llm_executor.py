"""A model writes code, Cordon runs it on the user's data, the answer is a value.

The model here is a stub with canned answers, one of them hostile, so that the example runs anywhere:

    python3 examples/llm_executor.py
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Protocol

from cordon.runner import SandboxResult, SecurityLevel, create_runner


class LLMClient(Protocol):
    def generate(self, prompt: str) -> str:
        ...


class StubModel:
    """Answers what it was told to answer, in order."""

    def __init__(self, answers: List[str]) -> None:
        self._answers = list(answers)

    def generate(self, prompt: str) -> str:
        return self._answers.pop(0)


@dataclass
class Task:
    id: str
    question: str
    data: Dict[str, Any]


@dataclass
class ExecutionResult:
    task_id: str
    output: Any
    success: bool
    generated_code: str
    trajectory: List[str] = field(default_factory=list)


class LLMExecutor:
    """Asks for code, runs it, and asks again with the error until it works or the attempts are used up."""

    def __init__(self, llm: LLMClient, sandbox_level: SecurityLevel = SecurityLevel.STANDARD, attempts: int = 3) -> None:
        self.llm = llm
        self.attempts = attempts
        self.runner = create_runner(sandbox_level)

    def execute(self, task: Task) -> ExecutionResult:
        trajectory: List[str] = []
        code, result = "", None
        prompt = f"Write Python that answers: {task.question}\nVariables: {', '.join(task.data)}"
        for _ in range(self.attempts):
            code = self.llm.generate(prompt)
            result = self.runner.execute(code, task.data)
            trajectory.append(self._describe(result))
            if result.success:
                break
            prompt += f"\nThe last answer failed: {result.error}"
        assert result is not None
        return ExecutionResult(task.id, result.result, result.success, code, trajectory)

    @staticmethod
    def _describe(result: SandboxResult) -> str:
        end = "ok" if result.success else result.error
        return f"{end} ({result.execution_time_ms:.0f} ms, {result.memory_used_mb or 0:.0f} MB)"

    def close(self) -> None:
        self.runner.cleanup()


def main() -> None:
    model = StubModel([
        "import os\nresult = os.environ",                      # refused: the module is not on the list
        "result = sum(prices) / len(price)",                   # a mistake
        "import statistics\nresult = {'mean': statistics.mean(prices), 'top': max(prices)}",
    ])
    executor = LLMExecutor(model)
    try:
        answer = executor.execute(Task("prices", "What is the mean price, and the highest?", {"prices": [3, 4, 8]}))
    finally:
        executor.close()
    for step in answer.trajectory:
        print("attempt:", step)
    print("answer:", answer.output)


if __name__ == "__main__":
    main()
