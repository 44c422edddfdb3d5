"""Pictures of the figures and tables of counts that ``fedquilt reproduce`` draws."""
