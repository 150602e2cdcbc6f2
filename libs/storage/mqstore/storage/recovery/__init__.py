"""Finding out how a store was left, and making it whole: ``plan`` looks, ``Applier`` acts."""

from mqstore.storage.recovery.apply import Applier
from mqstore.storage.recovery.plan import clean_plan, plan
from mqstore.storage.recovery.report import RecoveryPlan, RecoveryReport
from mqstore.storage.recovery.view import StoreView

__all__ = ["Applier", "RecoveryPlan", "RecoveryReport", "StoreView", "clean_plan", "plan"]
