"""Planning without a GPU: targets, explanations, stored graphs and replayed plans.

Shows: a `Target` is plain data, so a laptop can plan for an H200; `explain` says what each engine would do
or why it declines; a graph travels as JSON; a plan is replayed by its id and knobs, or loaded from a file.
"""

import numpy as np

import frazil

# 1. A graph, with no device in sight.
graph = frazil.Graph("mlp", io_data_type=frazil.data_type.FLOAT, target="cpu")
x, w = graph.tensor((1, 32, 64), name="x"), graph.tensor((1, 64, 16), name="w")
y = graph.relu(graph.matmul(x, w)).set_name("y").set_output(True)

# 2. What would each engine do with it on a Hopper GPU? Neither needs one nor changes the graph.
hopper = frazil.Target.named("sm_90")
print(
    f"{hopper.arch}: {hopper.sm_count} multiprocessors, {hopper.shared_memory} bytes of shared memory a block"
)
print(graph.explain(hopper))

# 3. The graph as JSON: store it, send it, read it elsewhere. Names and uids are kept.
text = graph.to_json()
copy = frazil.Graph(target="cpu")
copy.deserialize(text)
assert copy.key() == graph.key()
print(f"graph: {len(text)} characters of JSON, read back with the same key")

# 4. Plan once, note which plan was chosen, and replay exactly that one elsewhere: nothing is ranked again.
graph.build()
engine_id, knobs = graph.get_engine_and_knobs_at_index(0)
copy.create_execution_plan(engine_id, knobs)
copy.build_plans()
print(f"replayed plan: {copy.selected_engine}")

# 5. Or store the plan itself, with what it compiled.
stored = graph.serialize(as_bytes=True)
loaded = frazil.Graph()
loaded.deserialize(stored)
print(f"plan: {len(stored)} bytes, ready to execute after loading")

rng = np.random.default_rng(0)
pack = {
    "x": rng.standard_normal(x.dim).astype(np.float32),
    "w": rng.standard_normal(w.dim).astype(np.float32),
}
expected = np.maximum(pack["x"].astype(np.float64) @ pack["w"].astype(np.float64), 0)
errors = []
for planned in (graph, copy, loaded):
    result = np.empty(y.dim, np.float32)
    planned.execute({**pack, "y": result}, planned.empty_workspace())
    errors.append(np.max(np.abs(result - expected)))
print(f"check: largest error of the three {np.max(errors):.2e}, allowed 1.00e-04")
assert np.max(errors) <= 1e-4
