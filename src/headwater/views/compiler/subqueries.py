def filter_by_subqueries(block):
    from headwater.views.compiler.drafts import Unsupported
    from headwater.views.compiler.expressions import has_subquery

    if any(map(has_subquery, (*block.where, *block.conditions))):
        raise Unsupported("subquery")


def project_subqueries(block):
    from headwater.views.compiler.drafts import Unsupported
    from headwater.views.compiler.expressions import has_subquery

    if any(map(has_subquery, block.rest.expressions)):
        raise Unsupported("subquery")
