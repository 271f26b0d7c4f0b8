"""The forecast: how fast, how dear, does it fit, and backwards what a claim allows. Stands alone."""
