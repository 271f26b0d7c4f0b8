"""A small shop's stock: what is there, what it costs, what must be ordered."""

from dataclasses import dataclass, field


@dataclass
class Item:
    name: str
    price: float
    count: int = 0
    minimum: int = 5

    def total_price(self) -> float:
        """The value of all pieces in stock."""
        return self.price * self.count

    def is_low(self) -> bool:
        return self.count < self.minimum


@dataclass
class Inventory:
    items: dict[str, Item] = field(default_factory=dict)

    def add(self, item: Item) -> None:
        if item.name in self.items:
            self.items[item.name].count += item.count
        else:
            self.items[item.name] = item

    def remove(self, name: str, count: int = 1) -> None:
        item = self.items[name]
        if count > item.count:
            raise ValueError(f"only {item.count} of {name} left")
        item.count -= count

    def total_price(self) -> float:
        return sum(item.total_price() for item in self.items.values())

    def to_order(self) -> list[str]:
        return sorted(item.name for item in self.items.values() if item.is_low())


def report(inventory: Inventory) -> str:
    lines = []
    for item in sorted(inventory.items.values(), key=lambda item: item.name):
        mark = "!" if item.is_low() else " "
        lines.append(f"{mark} {item.name:<20} {item.count:>5} {item.total_price():>10.2f}")
    lines.append(f"  {'total':<20} {'':>5} {inventory.total_price():>10.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    shop = Inventory()
    shop.add(Item("pencil", 0.8, 120))
    shop.add(Item("notebook", 2.5, 4))
    shop.add(Item("eraser", 0.5, 60))
    print(report(shop))
    print("order:", ", ".join(shop.to_order()))
