"""Where questions come from: made from a seed (reasoning-gym) or read from files, part of them held out."""

from engine.learning.tasks.made import ReasoningGymTask
from engine.learning.tasks.making import check_task, make_task
from engine.learning.tasks.read import FileTask
from engine.learning.tasks.task import Task

__all__ = ["FileTask", "ReasoningGymTask", "Task", "check_task", "make_task"]
