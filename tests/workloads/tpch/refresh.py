"""TPC-H's refresh stream: ticks of inserts, updates and deletes to every table.

What it is: ``Refresh``, which reads the oracle's current tables, decides what changes, and tells the oracle. The
specification's own streams only add and remove orders; views must also bear updates, and changes to nations.
Invariants: the same data and seed give the same ticks. Foreign keys are mostly valid: now and then one dangles,
when a parent is deleted and its children are not, or a row names a parent that never was. Values are drawn so that
rows cross the queries' filters in both directions.
Not here: the tables (``log/schema/normalization.py``).
Read next: ``tests/spark/test_tpch.py``.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from decimal import Decimal

import pyarrow as pa

from tests.workloads.oracle import Oracle
from tests.workloads.tables import Draft, Row, Tick

DANGLING = 0.02
DATES = [dt.date(1993, 6, 15) + dt.timedelta(days=16 * step) for step in range(90)]

# What the queries look for, with something beside it that they do not.
SEGMENTS = ("BUILDING", "BUILDING", "MACHINERY", "HOUSEHOLD")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW")
PHONES = ("13", "31", "23", "29", "30", "18", "17", "11", "25")
PART_NAMES = ("forest lace", "forest green blue", "lime green", "peru tan")
KINDS = (  # brand, container, size
    ("Brand#12", "SM CASE", 5),
    ("Brand#23", "MED BOX", 9),
    ("Brand#23", "MED BOX", 15),
    ("Brand#34", "LG BOX", 14),
    ("Brand#45", "JUMBO JAR", 49),
    ("Brand#51", "WRAP BAG", 15),
)
TYPES = ("ECONOMY ANODIZED STEEL", "PROMO BURNISHED BRASS", "MEDIUM POLISHED TIN", "LARGE PLATED BRASS")
MODES = ("AIR", "AIR REG", "MAIL", "SHIP", "TRUCK")
INSTRUCTIONS = ("DELIVER IN PERSON", "DELIVER IN PERSON", "COLLECT COD", "NONE")
NATIONS = (2, 3, 6, 7, 8, 12, 20, 24)  # as generated: Brazil, Canada, France, Germany, India, Japan, Saudi Arabia, USA
REMARKS = ("quick deposits", "special pending requests", "Customer unhappy Complaints", "even packages")


class Refresh:
    """Ticks over the tables that ``oracle`` holds; each one is told to the oracle before it is returned."""

    def __init__(self, oracle: Oracle, *, seed: int = 1) -> None:
        self.oracle = oracle
        self.random = random.Random(seed)
        self._next_key = {name: self._largest(name) for name in oracle.tables}
        self._keys: dict[str, pa.Table] = {}  # of the tables as the tick finds them
        self._lost_nations: list[Row] = []

    def tick(self, orders: int, *, everywhere: bool = True) -> Tick:
        """Changes in proportion to ``orders``: about that many new ones, half as many deleted, and so on.

        Not ``everywhere``: to orders and their lines only, as the specification has it, and updates of these.
        """
        drafts = {name: Draft(table) for name, table in self.oracle.tables.items()}
        self._keys = {name: self._columns(name, table.key) for name, table in self.oracle.tables.items()}
        self._keys["sought stock"] = self._sought_stock()
        few = max(1, orders // 4)
        self._add_orders(drafts, orders)
        self._delete_orders(drafts, max(1, orders // 2))
        self._update(drafts["orders"], orders, self._change_order)
        self._update(drafts["lineitem"], 3 * orders, self._change_line)
        for name, change in (
            ()
            if not everywhere
            else (
                ("customer", self._change_customer),
                ("part", self._change_part),
                ("partsupp", self._change_stock),
                ("supplier", self._change_supplier),
            )
        ):
            self._update(drafts[name], few, change)
            self._delete(drafts[name], max(1, few // 4))
        if everywhere:
            self._add_parents(drafts, max(1, few // 2))
            self._change_geography(drafts)
        changes = {name: draft.changes() for name, draft in drafts.items() if draft.rows}
        self.oracle.apply(changes)
        return changes

    # Orders and their lines

    def _add_orders(self, drafts: dict[str, Draft], count: int) -> None:
        for place, template in enumerate(self._sample("orders", count)):
            key = self._new_key("orders")
            order = {**template, "o_orderkey": key, "o_custkey": self._parent("customer")["c_custkey"]}
            drafts["orders"].put(self._change_order(order))
            bulky = place % 8 == 0  # an order of more than 300 pieces, as Q18 looks for
            for number, line in enumerate(self._sample("lineitem", 7 if bulky else self.random.randint(1, 6)), start=1):
                self._change_line(line)
                line["l_orderkey"], line["l_linenumber"] = key, number
                line["l_quantity"] = Decimal(50) if bulky else line["l_quantity"]
                drafts["lineitem"].put(line)

    def _delete_orders(self, drafts: dict[str, Draft], count: int) -> None:
        for place, order in enumerate(self._sample("orders", count)):
            whole, order_only = place % 4 < 3, place % 8 == 3
            if whole or order_only:
                drafts["orders"].drop(order)
            if whole or not order_only:
                for line in self._rows("lineitem", f"l_orderkey = {order['o_orderkey']}"):
                    drafts["lineitem"].drop(line)

    def _change_order(self, order: Row) -> Row:
        choose = self.random.choice
        order["o_orderdate"] = choose(DATES)
        order["o_orderpriority"] = choose(PRIORITIES)
        order["o_orderstatus"] = choose("FFOP")
        order["o_totalprice"] = self._money(1_000, 500_000)
        order["o_comment"] = choose(REMARKS)
        return order

    def _change_line(self, line: Row) -> Row:
        choose = self.random.choice
        stock = self._parent("partsupp" if self.random.random() < 0.6 else "sought stock")
        line["l_partkey"], line["l_suppkey"] = stock["ps_partkey"], stock["ps_suppkey"]
        line["l_quantity"] = Decimal(choose((2, 8, 15, 25, self.random.randint(1, 50))))
        line["l_extendedprice"] = self._money(900, 90_000)
        line["l_discount"] = Decimal(self.random.randint(0, 10)) / 100
        line["l_shipdate"] = choose(DATES)
        line["l_commitdate"] = line["l_shipdate"] + dt.timedelta(days=self.random.randint(-20, 40))
        line["l_receiptdate"] = line["l_shipdate"] + dt.timedelta(days=self.random.randint(1, 30))
        line["l_returnflag"], line["l_linestatus"] = choose(("RF", "AF", "NO", "NF"))
        line["l_shipmode"], line["l_shipinstruct"] = choose(MODES), choose(INSTRUCTIONS)
        return line

    # The other tables

    def _change_customer(self, customer: Row) -> Row:
        customer["c_nationkey"] = self.random.choice(NATIONS)
        customer["c_mktsegment"] = self.random.choice(SEGMENTS)
        customer["c_acctbal"] = self._money(-999, 9_999)
        customer["c_phone"] = self.random.choice(PHONES) + customer["c_phone"][2:]
        return customer

    def _change_part(self, part: Row) -> Row:
        choose = self.random.choice
        part["p_name"], part["p_type"] = choose(PART_NAMES), choose(TYPES)
        part["p_brand"], part["p_container"], part["p_size"] = choose(KINDS)
        return part

    def _change_stock(self, stock: Row) -> Row:
        stock["ps_availqty"] = self.random.randint(1, 9_999)
        stock["ps_supplycost"] = self._money(1, 1_000)
        return stock

    def _change_supplier(self, supplier: Row) -> Row:
        supplier["s_nationkey"] = self.random.choice(NATIONS)
        supplier["s_acctbal"] = self._money(-999, 9_999)
        supplier["s_comment"] = self.random.choice(REMARKS)
        return supplier

    def _add_parents(self, drafts: dict[str, Draft], count: int) -> None:
        for name, key, change in (
            ("customer", "c_custkey", self._change_customer),
            ("part", "p_partkey", self._change_part),
            ("supplier", "s_suppkey", self._change_supplier),
        ):
            for template in self._sample(name, count):
                drafts[name].put(change({**template, key: self._new_key(name)}))
        for part in self._sample("part", count):
            for supplier in self._sample("supplier", 2):
                row = {"ps_partkey": part["p_partkey"], "ps_suppkey": supplier["s_suppkey"], "ps_comment": "new"}
                drafts["partsupp"].put(self._change_stock(row))

    def _change_geography(self, drafts: dict[str, Draft]) -> None:
        """A nation moves to another region, two nations or two regions swap names, a nation goes or comes back."""
        nations = self._rows("nation")
        mover, one, other = self.random.sample(nations, 3)
        drafts["nation"].put({**mover, "n_regionkey": self.random.randint(0, 4)})
        drafts["nation"].put({**one, "n_name": other["n_name"]})
        drafts["nation"].put({**other, "n_name": one["n_name"]})
        if self._lost_nations:
            drafts["nation"].put(self._lost_nations.pop())
        else:
            goner = self.random.choice([nation for nation in nations if nation not in (mover, one, other)])
            drafts["nation"].drop(goner)
            self._lost_nations.append(goner)
        regions = self._rows("region")
        one, other = self.random.sample(regions, 2)
        drafts["region"].put({**one, "r_name": other["r_name"]})
        drafts["region"].put({**other, "r_name": one["r_name"]})

    # Drawing

    def _update(self, draft: Draft, count: int, change: Callable[[Row], Row]) -> None:
        for row in self._sample(draft.table.name, count):
            draft.put_unless_taken(change(row))

    def _delete(self, draft: Draft, count: int) -> None:
        for row in self._sample(draft.table.name, count):
            draft.drop(row)

    def _sample(self, name: str, count: int) -> list[Row]:
        """Whole rows of a table, drawn evenly, in the order of their keys."""
        keys = self._keys[name]
        chosen = keys.take(self.random.sample(range(keys.num_rows), min(count, keys.num_rows))).to_pylist()
        if not chosen:
            return []
        wanted = ", ".join("(" + ", ".join(map(str, key.values())) + ")" for key in chosen)
        return self._rows(name, f"({', '.join(keys.column_names)}) IN ({wanted})")

    def _rows(self, name: str, condition: str = "true") -> list[Row]:
        order = ", ".join(self.oracle.tables[name].key)
        return self.oracle.ask(f"SELECT * FROM {name} WHERE {condition} ORDER BY {order}").to_pylist()

    def _columns(self, name: str, columns: Sequence[str]) -> pa.Table:
        listed = ", ".join(columns)
        return self.oracle.ask(f"SELECT {listed} FROM {name} ORDER BY {listed}")

    def _sought_stock(self) -> pa.Table:
        """The stock of parts that Q17, Q19 and Q20 look for: lines of them are drawn more often than by chance."""
        kinds = ", ".join(f"('{brand}', '{container}')" for brand, container, _ in KINDS[:4])
        found = self.oracle.ask(
            "SELECT ps_partkey, ps_suppkey FROM partsupp JOIN part ON p_partkey = ps_partkey "
            f"WHERE (p_brand, p_container) IN ({kinds}) OR p_name LIKE 'forest%' ORDER BY ALL"
        )
        return found if found.num_rows else self._keys["partsupp"]

    def _parent(self, name: str) -> Row:
        """A key to refer to."""
        keys = self._keys[name]
        chosen = keys.slice(self.random.randrange(keys.num_rows), 1).to_pylist()[0]
        if self.random.random() < DANGLING:
            return {column: value + 10_000_000 for column, value in chosen.items()}
        return chosen

    def _money(self, least: int, most: int) -> Decimal:
        return Decimal(self.random.randint(least * 100, most * 100)) / 100

    def _new_key(self, name: str) -> int:
        self._next_key[name] += 1
        return self._next_key[name]

    def _largest(self, name: str) -> int:
        column = self.oracle.tables[name].key[0]
        return int(self.oracle.ask(f"SELECT max({column}) AS largest FROM {name}").to_pylist()[0]["largest"])
