"""Data sources, one folder each, by the name a recipe uses."""

SOURCES = {
    "chestxray14": "fedquilt.data.sources.chestxray14.load:ChestXray14",
    "cifar10": "fedquilt.data.sources.cifar10.load:Cifar10",
    "cifar10-composites": "fedquilt.data.sources.composites.load:Cifar10Composites",
    "dermamnist-composites": "fedquilt.data.sources.composites.load:DermaMnistComposites",
    "digits-mosaic": "fedquilt.data.sources.digits_mosaic.load:DigitsMosaic",
    "flair": "fedquilt.data.sources.flair.load:Flair",
    "folder": "fedquilt.data.sources.folder.load:Folder",
    "given": "fedquilt.data.sources.given.load:Given",
    "ham10000": "fedquilt.data.sources.ham10000.load:Ham10000",
    "medmnist": "fedquilt.data.sources.medmnist.load:MedMnist",
    "mnist": "fedquilt.data.sources.mnist.load:Mnist",
    "mnist-composites": "fedquilt.data.sources.composites.load:MnistComposites",
    "ms-coco": "fedquilt.data.sources.ms_coco.load:MsCoco",
    "pascal-voc": "fedquilt.data.sources.pascal_voc.load:PascalVoc",
    "rsna-ich": "fedquilt.data.sources.rsna_ich.load:RsnaIch",
}
