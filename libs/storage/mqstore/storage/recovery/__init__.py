"""Recovery: ``plan`` finds the state in which a store was left, ``Applier`` repairs it."""

from mqstore.storage.recovery.apply import Applier
from mqstore.storage.recovery.plan import clean_plan, plan
from mqstore.storage.recovery.report import RecoveryPlan, RecoveryReport
from mqstore.storage.recovery.view import StoreView

__all__ = ["Applier", "RecoveryPlan", "RecoveryReport", "StoreView", "clean_plan", "plan"]
