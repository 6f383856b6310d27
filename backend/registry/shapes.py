"""Answers about the registry: its epochs, and what a tenant contributed."""

from rest_framework import serializers as s

from backend.domain.ids import Prefix
from backend.registry.models import Contribution, Epoch
from backend.rest.shapes import Constant, PublicId, Shape, Time


class EpochShape(Shape[Epoch]):
    id = PublicId(Prefix.EPOCH)
    object = Constant("registry_epoch")
    epoch = s.IntegerField(source="number", help_text="1, 2, 3: each names the digest of the one before it.")
    sha256 = s.CharField(help_text="Of the file.")
    size_bytes = s.IntegerField()
    merkle_root = s.CharField()
    shape_version = s.CharField()
    k = s.IntegerField(help_text="How many parties, at least, share each entry.")
    n_entries = s.IntegerField()
    created_at = Time()


class ContributionShape(Shape[Contribution]):
    object = Constant("registry_contribution")
    shape = s.CharField()
    run = s.CharField()
    shape_version = s.CharField()
    created_at = Time()
    seen_at = Time(help_text="When a compile last came to it; a year later it counts no more.")
