"""Which worker has which parts, and which one holds copies of them."""


def homes_for(old: tuple[str, ...], workers: list[str]) -> tuple[str, ...]:
    """By part, its worker: the old one if it still exists; idle workers take over from others.

    Examples
    --------
    >>> homes_for(("a", "b", "c"), ["a", "c", "d"])
    ('a', 'd', 'c')
    >>> homes_for(("a", "b", "a"), ["a", "b", "d"])
    ('a', 'b', 'd')
    """
    homes = [home if home in workers else None for home in old]
    load = {address: homes.count(address) for address in workers}
    for part, home in enumerate(homes):
        if home is None:
            homes[part] = min(load, key=lambda address: load[address])
            load[str(homes[part])] += 1
    for idle in [address for address in workers if load[address] == 0]:
        crowded = max(load, key=lambda address: load[address])
        if load[crowded] > 1:
            homes[max(part for part, home in enumerate(homes) if home == crowded)] = idle
            load[crowded] -= 1
            load[idle] += 1
    return tuple(map(str, homes))


def keepers_for(homes: tuple[str, ...]) -> tuple[str | None, ...]:
    """By part, the worker that holds its copies: on another machine if there is one."""

    def host(address: str) -> str:
        return address.rpartition(":")[0]

    workers = list(dict.fromkeys(homes))
    keepers: list[str | None] = []
    for home in homes:
        place = workers.index(home)
        others = workers[place + 1 :] + workers[:place]
        far = [other for other in others if host(other) != host(home)]
        keepers.append(next(iter(far or others), None))
    return tuple(keepers)
