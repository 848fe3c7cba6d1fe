"""An op as its YAML file declares it: dims, attributes, inputs, formulas, targets. No torch."""
