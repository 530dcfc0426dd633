"""Every engine for GPUs on every case: it claims the case and equals the reference, or declines with a
reason.
"""

from __future__ import annotations

import numpy as np
import pytest

import frazil
from frazil.op import Case
from frazil.ops import OPS
from tests import harness

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name, case", harness.cases(*OPS))
def test_case(name: str, case: Case) -> None:
    from tests.gpu import harness as device

    made = harness.setup(name, case, np.random.default_rng(0), target=frazil.Target.current().arch)
    try:
        made.graph.create_execution_plans()
    except frazil.NotSupported as refused:
        assert refused.declines and all(d.reason for d in refused.declines)
        return
    reference = harness.setup(name, case, np.random.default_rng(0))
    expected = harness.run(reference)
    for index in range(made.graph.get_execution_plan_count()):
        made.graph.build_plan_at_index(index)
        pack, outputs = device.bind(made)
        made.graph.execute_plan_at_index(
            pack, made.graph.empty_workspace(next(iter(outputs.values()))), index
        )
        for port, result in outputs.items():
            dtype = made.outputs[port].data_type
            what = f"{made.graph.get_plan_name_at_index(index)}: {name}/{case.name}/{port}"
            right = expected[port].astype(np.float64)
            harness.assert_close(device.to_host(result, dtype), right, dtype, what, case.compute)
