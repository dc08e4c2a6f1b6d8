"""Random cases for the allocator of devices, as plain objects of the API.

They are small, because upstream tries every combination. But all parts occur together: pools that are local, shared or
mixed, several generations, incomplete and invalid pools, counters, capacities, taints, binding conditions, and claims
with every kind of request.
"""

from random import Random
from typing import Any

Case = dict[str, Any]

NODE = "n0"
DRIVERS = ("gpu.example.com", "nic.example.com")
MODELS = ("a", "b", "c")
TAINTS = (
    {"key": "k", "value": "x", "effect": "NoSchedule"},
    {"key": "k", "effect": "NoExecute"},
    {"key": "o", "effect": "None"},
)
TOLERATIONS = (
    {"key": "k", "operator": "Exists"},
    {"operator": "Exists", "effect": "NoSchedule"},
    {"key": "k", "operator": "Equal", "value": "x", "effect": "NoSchedule", "tolerationSeconds": 5},
)
ATTRIBUTES = (
    "gpu.example.com/model",
    "gpu.example.com/numa",
    "gpu.example.com/numa",
    "nic.example.com/model",
    "shared.example.com/root",
)


def random_case(seed: int) -> Case:
    """Return the case of a seed."""
    return _Generator(Random(seed)).case()  # noqa: S311 - no secret


class _Generator:
    """Makes one case."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.shareable: list[Case] = []
        self.sharing = self.chance(0.35)
        self.counting = self.chance(0.3)
        self.constraining = self.chance(0.4)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def case(self) -> Case:
        slices = [
            found
            for driver in DRIVERS[: self.random.randint(1, 2)]
            for index in range(self.random.randint(1, 2))
            for found in self.pool(driver, f"p{self.random.randint(0, 9)}{index}")
        ]
        for found, number in zip(slices, self.random.sample(range(100), len(slices)), strict=True):
            found["metadata"] = {"name": f"s{number:02}"}
        return {
            "node": NODE,
            "labels": {"zone": self.random.choice("ab"), "rack": "r1"},
            "slices": slices,
            "rules": [self.rule() for _ in range(self.random.choice((0, 0, 0, 1, 2)))],
            "classes": [self.device_class(name) for name in ("any", "big", "odd")],
            "claims": [self.claim(index) for index in range(self.random.choice((1, 1, 1, 2, 2, 3)))],
            "allocated": [one for found in slices for one in self.allocated(found)],
        }

    # What drivers offer.

    def pool(self, driver: str, name: str) -> list[Case]:
        kind = self.random.choice(("local", "local", "local", "shared", "device", "mixed"))
        generation = self.random.choice((1, 1, 1, 3))
        names = iter(self.random.sample(range(100), 40))
        binding = self.chance(0.15)
        sets = (
            [f"cs{index}" for index in range(self.random.randint(1, 2))] if self.counting and self.chance(0.7) else []
        )
        slices = [
            self.slice_of(
                driver,
                name,
                kind,
                generation,
                [
                    self.device(driver, f"d{next(names)}", kind, binding=binding, sets=sets)
                    for _ in range(self.random.randint(1, 5))
                ],
            )
            for _ in range(self.random.choice((1, 1, 2, 3)))
        ]
        slices += [self.counter_slice(driver, name, kind, generation, one) for one in sets]
        count = len(slices) + (self.random.choice((-1, 1)) if self.chance(0.03) else 0)
        if self.chance(0.1):
            other = self.slice_of(
                driver,
                name,
                self.random.choice((kind, "local", "shared")),
                generation + self.random.choice((-1, 1)),
                [
                    self.device(driver, f"d{self.random.randint(0, 99)}", kind, binding=binding, sets=[])
                    for _ in range(2)
                ],
            )
            slices.append(other)
        for one in slices:
            one["spec"]["pool"]["resourceSliceCount"] = count
        self.break_pool(slices)
        return slices

    def break_pool(self, slices: list[Case]) -> None:
        """Make some pools invalid."""
        devices = [device for one in slices for device in one["spec"].get("devices", [])]
        if self.chance(0.03):
            self.random.choice(devices)["name"] = devices[0]["name"]
        if self.chance(0.02):
            self.random.choice(devices)["consumesCounters"] = [{"counterSet": "cs9", "counters": {"x": {"value": "1"}}}]
        if self.chance(0.02):
            device = self.random.choice(devices)
            for one in device.get("consumesCounters", []):
                one["compatibilityGroups"] = ["g"]

    def slice_of(self, driver: str, pool: str, kind: str, generation: int, devices: list[Case]) -> Case:
        spec: Case = {"driver": driver, "pool": {"name": pool, "generation": generation}, "devices": devices}
        if kind == "device":
            spec["perDeviceNodeSelection"] = True
        else:
            spec |= self.selection(kind)
            for one in devices:
                for field in ("nodeName", "allNodes", "nodeSelector"):
                    one.pop(field, None)
        return {"spec": spec}

    def counter_slice(self, driver: str, pool: str, kind: str, generation: int, name: str) -> Case:
        found = self.slice_of(driver, pool, "shared" if kind == "device" else kind, generation, [])
        del found["spec"]["devices"]
        amounts = {
            "memory": {"value": self.random.choice(("40Gi", "80Gi"))},
            "slots": {"value": str(self.random.randint(1, 5))},
        }
        found["spec"]["sharedCounters"] = [{"name": name, "counters": amounts}]
        if self.chance(0.03):
            found["spec"]["sharedCounters"] *= 2
        return found

    def selection(self, kind: str) -> Case:
        """Return the nodes of a slice or of a device."""
        if kind == "local" or (kind == "mixed" and self.chance(0.5)):
            return {"nodeName": NODE if self.chance(0.9) else "n1"}
        if self.chance(0.4):
            return {"allNodes": True}
        if self.chance(0.2):
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
        else:
            term = {
                "matchExpressions": [
                    {"key": "zone", "operator": "In", "values": self.random.choice((["a"], ["a", "b"], ["b", "a"]))}
                ]
            }
            if self.chance(0.3):
                term["matchExpressions"].append({"key": "rack", "operator": "Exists"})
        return {"nodeSelector": {"nodeSelectorTerms": [term]}}

    def device(self, driver: str, name: str, kind: str, *, binding: bool, sets: list[str]) -> Case:
        device: Case = {"name": name, "attributes": self.attributes(driver)}
        if kind == "device":
            device |= self.selection(self.random.choice(("local", "shared")))
        if self.sharing and self.chance(0.5):
            device["allowMultipleAllocations"] = True
        if self.chance(0.6):
            device["capacity"] = {
                key: self.capacity() for key in self.random.sample(("memory", "cores"), self.random.randint(1, 2))
            }
        if sets and self.chance(0.8):
            device["consumesCounters"] = [
                {"counterSet": one, "counters": self.consumed()}
                for one in self.random.sample(sets, self.random.randint(1, len(sets)))
            ]
        if self.chance(0.12):
            device["taints"] = self.random.sample(TAINTS, self.random.randint(1, 2))
        if binding and self.chance(0.5):
            device["bindingConditions"] = ["ready"] if self.chance(0.8) else []
            device["bindingFailureConditions"] = ["broken"]
        if self.chance(0.08):
            device["bindsToNode"] = self.chance(0.7)
        return device

    def attributes(self, driver: str) -> Case:
        found: Case = {}
        for name, value in (
            ("model", {"string": self.random.choice(MODELS)}),
            ("numa", {"int": self.random.randint(0, 1)}),
        ):
            qualified = driver != DRIVERS[0] or self.chance(0.5)
            if self.chance(0.98):
                found[f"{DRIVERS[0]}/{name}" if qualified else name] = value
        if self.chance(0.9):
            found["shared.example.com/root"] = self.random.choice(
                ({"string": "x"}, {"string": "y"}, {"version": "1.0.0"}, {"bool": True}, {"int": 1}, {"strings": ["x"]})
            )
        return found

    def consumed(self) -> Case:
        amounts = {
            "memory": {"value": self.random.choice(("10Gi", "20Gi", "40Gi"))},
            "slots": {"value": str(self.random.randint(1, 2))},
        }
        return {key: amounts[key] for key in self.random.sample(sorted(amounts), self.random.randint(1, 2))}

    def capacity(self) -> Case:
        value = self.random.choice(("4", "10", "2500m", "16"))
        found: Case = {"value": value}
        if self.chance(0.5):
            found["requestPolicy"] = self.random.choice(
                (
                    {"default": "1"},
                    {"default": "2", "validValues": ["1", "2", "4"]},
                    {"default": "1", "validRange": {"min": "1"}},
                    {"default": "1", "validRange": {"min": "1", "max": "5", "step": "2"}},
                    {"default": "500m", "validRange": {"min": "500m", "step": "250m", "max": "3"}},
                    {"default": "1", "validRange": {"min": "1", "step": "1500u"}},
                    {},
                )
            )
        return found

    def rule(self) -> Case:
        selector: Case = {}
        if self.chance(0.7):
            selector["driver"] = self.random.choice(DRIVERS)
        if self.chance(0.5):
            selector["pool"] = f"p{self.random.randint(0, 9)}0"
        if self.chance(0.3):
            selector["device"] = f"d{self.random.randint(0, 99)}"
        spec: Case = {"taint": self.random.choice(TAINTS)}
        return {"spec": spec if self.chance(0.1) else spec | {"deviceSelector": selector}}

    # What is asked for.

    def device_class(self, name: str) -> Case:
        expressions = {
            "any": [],
            "big": [f'device.driver == "{self.random.choice(DRIVERS)}"'],
            "odd": [self.expression()],
        }[name]
        spec: Case = {"selectors": [{"cel": {"expression": one}} for one in expressions]}
        if self.chance(0.3):
            spec["config"] = [
                {"opaque": {"driver": DRIVERS[0], "parameters": {"of": name, "at": index}}}
                for index in range(self.random.randint(1, 2))
            ]
        return {"metadata": {"name": name}, "spec": spec}

    def expression(self) -> str:
        driver = DRIVERS[0] if self.chance(0.9) else DRIVERS[1]
        if self.chance(0.5):
            return "true"
        attributes, capacity = f'device.attributes["{driver}"]', f'device.capacity["{driver}"]'
        memory = f"{capacity}.memory"
        model, amount = self.random.choice(MODELS), self.random.randint(1, 12)
        return self.random.choice(
            (
                "false",
                f'device.driver == "{driver}"',
                f'{attributes}.model == "{model}"',
                f"{attributes}.numa == {self.random.randint(0, 1)}",
                f'{attributes}.?model.orValue("a") != "{model}"',
                f'{attributes}.model in ["{model}", "a"]',
                f'{attributes}.model.matches("^[{model}x]$")',
                f'has({attributes}.numa) && {attributes}.numa < 1 || {attributes}.model.startsWith("{model}")',
                'device.attributes["shared.example.com"].?root.orValue("y") == "x"',
                'device.attributes["shared.example.com"].root == semver("1.0.0")',
                'cel.bind(found, device.attributes["shared.example.com"], "root" in found && found.root == "y")',
                f'"memory" in {capacity} ? {memory}.isGreaterThan(quantity("{amount}")) : {capacity}.cores != null',
                f'{capacity}.?memory.orValue(quantity("{amount}")).compareTo(quantity("5")) >= 0',
                "device.allowMultipleAllocations",
                "!device.allowMultipleAllocations",
            )
        )

    def claim(self, index: int) -> Case:
        requests = [self.request(f"r{number}") for number in range(self.random.choice((1, 1, 1, 2, 2, 3)))]
        names = [one["name"] for one in requests]
        names += [f"{one['name']}/{other['name']}" for one in requests for other in one.get("firstAvailable", [])]
        devices: Case = {"requests": requests}
        if self.constraining:
            devices["constraints"] = [self.constraint(names) for _ in range(self.random.choice((0, 1, 1, 2)))]
        if self.chance(0.4):
            devices["config"] = [
                {"requests": self.some(names), "opaque": {"driver": DRIVERS[0], "parameters": {"claim": number}}}
                for number in range(self.random.randint(1, 2))
            ]
        return {
            "metadata": {"name": f"c{index}", "namespace": "default", "uid": f"u{index}"},
            "spec": {"devices": devices},
        }

    def some(self, names: list[str]) -> list[str]:
        return self.random.sample(names, self.random.randint(1, min(3, len(names)))) if self.chance(0.6) else []

    def constraint(self, names: list[str]) -> Case:
        field = self.random.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
        return {"requests": self.some(names), field: self.random.choice(ATTRIBUTES)}

    def request(self, name: str) -> Case:
        if self.chance(0.25):
            return {
                "name": name,
                "firstAvailable": [{"name": f"s{index}", **self.asked()} for index in range(self.random.randint(1, 3))],
            }
        asked = self.asked()
        if self.chance(0.1):
            asked["adminAccess"] = self.chance(0.9)
        return {"name": name, "exactly": asked}

    def asked(self) -> Case:
        asked: Case = {
            "deviceClassName": self.random.choice(("any", "any", "any", "big", "odd")),
            "allocationMode": "ExactCount",
        }
        if self.chance(0.004):
            asked["deviceClassName"] = "none"
        if self.chance(0.12):
            asked["allocationMode"] = "All"
        else:
            asked["count"] = self.random.choice((1, 1, 1, 1, 1, 2, 2, 3, 20 if self.chance(0.1) else 1))
        if self.chance(0.4):
            asked["selectors"] = [{"cel": {"expression": self.expression()}} for _ in range(self.random.randint(1, 2))]
        if self.chance(0.2):
            asked["tolerations"] = self.random.sample(TOLERATIONS, self.random.randint(1, 2))
        if self.chance(0.25 if self.sharing else 0.1):
            asked["capacity"] = {
                "requests": {
                    key: self.random.choice(("1", "2", "3", "1500m", "750m", "1", "2500u", "11"))
                    for key in self.random.sample(("memory", "cores"), self.random.choice((1, 1, 2)))
                }
            }
        return asked

    # What others have.

    def allocated(self, found: Case) -> list[Case]:
        spec = found["spec"]
        results = []
        for device in spec.get("devices", []):
            if not self.chance(0.15):
                continue
            one: Case = {
                "request": "r",
                "driver": spec["driver"],
                "pool": spec["pool"]["name"],
                "device": device["name"],
            }
            if self.chance(0.1):
                one["adminAccess"] = True
            if device.get("allowMultipleAllocations") and self.chance(0.9):
                one["shareID"] = f"00000000-0000-0000-0000-0000000000{self.random.randint(10, 99)}"
                if self.chance(0.9):
                    one["consumedCapacity"] = {
                        key: self.random.choice(("1", "2", "500m")) for key in device.get("capacity", {})
                    }
            results.append(one)
        return results
