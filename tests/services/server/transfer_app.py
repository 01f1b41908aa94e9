"""The app that is served in the tests of claims, processes and services: a bank."""

import os

import headwater as hw
from tests.unit.aggregates.processes.transfer_bank import declare

app = hw.App("bank", home=os.environ["SERVED_SHOP_HOME"])
accounts, transfer = declare(app)
names = app.claims("username")


@app.service("double", request="n BIGINT", reply="twice BIGINT", key="n")
def double(request):
    if request["n"] < 0:
        raise hw.errors.Rejected("too small", least=0)
    return {"twice": 2 * request["n"]} if request["n"] < 100 else 1 // 0
