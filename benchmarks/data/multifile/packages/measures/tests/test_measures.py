import unittest

from measures import Quantity, convert, parse, show
from measures.convert import KindMismatch, factor
from measures.show import best, listing
from measures.units import UnknownUnit


class Conversion(unittest.TestCase):
    def test_lengths(self):
        self.assertAlmostEqual(convert(1, "mi", "km"), 1.609344)

    def test_temperatures(self):
        self.assertAlmostEqual(convert(100, "C", "F"), 212)

    def test_factor_leaves_the_offset_out(self):
        self.assertAlmostEqual(factor("C", "F"), 1.8)

    def test_kinds_do_not_mix(self):
        with self.assertRaises(KindMismatch):
            convert(1, "kg", "m")


class Text(unittest.TestCase):
    def test_parts_add_up(self):
        self.assertAlmostEqual(parse("5 ft 3 in").value, 5.25)

    def test_alias_in_any_case(self):
        self.assertEqual(parse("2 Miles"), Quantity(2.0, "mi"))

    def test_unknown(self):
        with self.assertRaises(UnknownUnit):
            parse("3 parsecs")

    def test_show(self):
        self.assertEqual(show(Quantity(1234.5, "m")), "1,234.5 m")
        self.assertEqual(show(Quantity(3, "kg")), "3 kg")

    def test_best(self):
        self.assertEqual(best(Quantity(90, "min")), Quantity(1.5, "h"))

    def test_listing(self):
        self.assertEqual(listing([Quantity(5, "m"), Quantity(12.5, "km")]), "   5 m\n12.5 km")


class Arithmetic(unittest.TestCase):
    def test_sum_keeps_the_first_unit(self):
        total = Quantity(1, "km") + Quantity(500, "m")
        self.assertEqual(total, Quantity(1.5, "km"))

    def test_order(self):
        self.assertTrue(Quantity(1, "in") < Quantity(1, "ft"))


if __name__ == "__main__":
    unittest.main()
